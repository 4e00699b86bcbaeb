"""Sources that are compiled as one: parsing TensorFlow's headers takes most of the time that an op or a kernel does."""

def _including_impl(ctx):
    # Not a command: what waits for one is compiled last, and these take long.
    ctx.actions.write(ctx.outputs.out, "".join(["#include \"%s\"\n" % source.short_path for source in ctx.files.srcs]))

_including = rule(
    implementation = _including_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc"]),
        "out": attr.output(),
    },
)

def compiled_together(name, srcs, **kwargs):
    """A cc_library of one object. What is in an anonymous namespace of one source needs a name of its own."""
    _including(
        name = name + "_source",
        srcs = srcs,
        out = name + "_together.cc",
    )
    native.cc_library(
        name = name,
        srcs = [name + "_together.cc"],
        textual_hdrs = srcs,
        **kwargs
    )
