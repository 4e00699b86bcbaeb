"""Sources that are compiled as one: parsing TensorFlow's headers takes most of the time that an op or a kernel does."""

def compiled_together(name, srcs, **kwargs):
    """A cc_library of one object. What is in an anonymous namespace of one source needs a name of its own."""
    native.genrule(
        name = name + "_source",
        srcs = srcs,
        outs = [name + "_together.cc"],
        cmd = "printf '#include \"%s\"\\n' $(SRCS) > $@",
    )
    native.cc_library(
        name = name,
        srcs = [name + "_together.cc"],
        textual_hdrs = srcs,
        **kwargs
    )
