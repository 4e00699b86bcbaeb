"""Finds nvcc (CUDA_HOME, PATH, /usr/local/cuda) and the architectures to build for; none is a CPU-only build.

TF_BLOCKRNN_CUDA=0 switches the search off. TF_BLOCKRNN_CUDA_ARCHITECTURES is "all" or some of them ("80,90"); without
it they are those of the machine's GPUs, and a machine without a GPU has a CPU-only build.
"""

# For "all": Volta or, where nvcc no longer knows it, Turing; Ampere; Hopper. What is newer runs the PTX of Ampere.
_ALL = [["70", "75"], ["80"], ["90"]]

# Where nvcc does not know the machine's GPU: newer ones run its PTX.
_DEFAULT = [["80"]]

_FACTS = """
# Written by cuda_configure.
CUDA_NVCC = {nvcc}  # empty: no CUDA in this build
CUDA_VERSION = {version}
CUDA_ARCHITECTURES = {architectures}
CUDA_MISSING = {missing}  # why there is no CUDA in this build
CUDA_LIBRARY_DIRECTORY = {library_directory}
"""

def _find_nvcc(repository_ctx):
    home = repository_ctx.os.environ.get("CUDA_HOME")
    places = [repository_ctx.path(home + "/bin/nvcc")] if home else []
    on_path = repository_ctx.which("nvcc")
    if on_path:
        places.append(on_path)
    places.append(repository_ctx.path("/usr/local/cuda/bin/nvcc"))
    for place in places:
        if place.exists:
            return place
    return None

def _value_in(text, start, end):
    return text.split(start)[1].split(end)[0] if start in text else ""

def _given(repository_ctx):
    return repository_ctx.os.environ.get("TF_BLOCKRNN_CUDA_ARCHITECTURES", "").strip()

def _wanted_architectures(repository_ctx):
    """Lists of alternatives: the first that nvcc knows is taken of each. None where nothing asks for a GPU."""
    given = _given(repository_ctx)
    if given == "all":
        return _ALL
    if given:
        names = [name.strip() for name in given.split(",")]
        if not all([name.isdigit() for name in names]):
            fail("TF_BLOCKRNN_CUDA_ARCHITECTURES is '%s'; it takes all, or numbers such as 80,90" % given)
        return [[name] for name in names]
    smi = repository_ctx.which("nvidia-smi")
    said = repository_ctx.execute([smi, "--query-gpu=compute_cap", "--format=csv,noheader"]) if smi else None
    if not said or said.return_code != 0:
        return []
    found = {line.strip().replace(".", ""): True for line in said.stdout.split("\n")}
    return [[name] for name in sorted(found) if name.isdigit()] or _DEFAULT

def _compiles_for(repository_ctx, nvcc, wanted):
    """The architectures among those wanted that nvcc compiles the probe for, and what it said to the last other one."""
    architectures = []
    problem = ""
    for choices in wanted:
        for architecture in choices:
            trial = repository_ctx.execute(
                [nvcc, "-c", "-arch=sm_" + architecture, "probe.cu", "-o", "probe.o"],
            )
            if trial.return_code == 0:
                architectures.append(architecture)
                break
            problem = (trial.stderr + trial.stdout).strip().split("\n")[-1]
    return architectures, problem

def _look(repository_ctx):
    """Returns the facts, as text, of what is there."""
    none = struct(nvcc = "", version = "", architectures = [], library_directory = "")
    if repository_ctx.os.environ.get("TF_BLOCKRNN_CUDA") == "0":
        return none, "switched off by TF_BLOCKRNN_CUDA=0"
    wanted = _wanted_architectures(repository_ctx)
    if not wanted:
        return none, "no GPU on the machine of the build, and TF_BLOCKRNN_CUDA_ARCHITECTURES named none"
    nvcc = _find_nvcc(repository_ctx)
    if not nvcc:
        return none, "no nvcc in CUDA_HOME, PATH or /usr/local/cuda"

    # nvcc itself says where its toolkit is, also through a link or a wrapper.
    repository_ctx.file("probe.cu", "#include <cuda_runtime.h>\n__global__ void Probe() {}\n")
    dry = repository_ctx.execute([nvcc, "-dryrun", "-c", "probe.cu"])
    libraries = _value_in(dry.stderr, "LIBRARIES=", "\n").replace('"', "").split("-L")
    libraries = [library.strip() for library in libraries if library.strip()]
    libraries = [lib for lib in libraries if repository_ctx.path(lib + "/libcudart_static.a").exists]
    if not libraries:
        return none, "%s knows no libcudart_static.a" % nvcc
    architectures, problem = _compiles_for(repository_ctx, nvcc, wanted)
    if problem and _given(repository_ctx) not in ("", "all"):
        fail("%s does not compile for all of TF_BLOCKRNN_CUDA_ARCHITECTURES: %s" % (nvcc, problem))
    if not architectures and not _given(repository_ctx):
        wanted = _DEFAULT
        architectures, problem = _compiles_for(repository_ctx, nvcc, wanted)
    if not architectures:
        tried = ", ".join(["sm_" + name for choices in wanted for name in choices])
        return none, "%s compiles for none of %s: %s" % (nvcc, tried, problem)
    version = _value_in(repository_ctx.execute([nvcc, "--version"]).stdout, ", V", "\n")
    return struct(
        nvcc = str(nvcc),
        version = version,
        architectures = architectures,
        library_directory = str(repository_ctx.path(libraries[0])),
    ), ""

def _cuda_configure_impl(repository_ctx):
    facts, missing = _look(repository_ctx)
    repository_ctx.file("BUILD", "")
    repository_ctx.file("facts.bzl", _FACTS.format(
        nvcc = repr(facts.nvcc),
        version = repr(facts.version),
        architectures = repr(facts.architectures),
        missing = repr(missing),
        library_directory = repr(facts.library_directory),
    ))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    configure = True,
    environ = ["CUDA_HOME", "PATH", "CC", "TF_BLOCKRNN_CUDA", "TF_BLOCKRNN_CUDA_ARCHITECTURES"],
)
