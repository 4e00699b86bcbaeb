"""Copies files into one folder of the output tree, where the build script finds them and no older ones."""

def _collect_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        inputs = ctx.files.srcs,
        outputs = [folder],
        arguments = [folder.path] + [file.path for file in ctx.files.srcs],
        command = 'folder=$1; shift; cp -L "$@" "$folder"',
        mnemonic = "Collect",
    )
    return [DefaultInfo(files = depset([folder]))]

collect = rule(
    implementation = _collect_impl,
    attrs = {"srcs": attr.label_list(allow_files = True)},
)
