#!/bin/bash
# tools/make_venv.sh FOLDER REQUIREMENTS...: installs these into a virtual environment, which it makes first.
set -euo pipefail
folder="$1"
shift

# The pinned packages want Python 3.11 or newer; TensorFlow 2.19 has no wheels for 3.13.
newest=13
[[ "${folder}" == *2.19* ]] && newest=12

usable() {
  "$1" -c "import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, ${newest}))" 2>/dev/null
}

if [[ ! -x "${folder}/bin/pip" ]]; then
  found=""
  for candidate in python3 python3.13 python3.12 python3.11; do
    if command -v "${candidate}" >/dev/null && usable "${candidate}"; then
      found="${candidate}"
      break
    fi
  done
  if [[ -z "${found}" ]]; then
    echo "No Python 3.11 to 3.${newest} with venv is on PATH: install one (Debian, Ubuntu: python3 and python3-venv)." >&2
    exit 1
  fi
  echo "Making ${folder} with $("${found}" --version)"
  rm -rf "${folder}"
  "${found}" -m venv "${folder}"
fi
echo "Installing $* into ${folder}; this takes up to a minute or two"
# Bars where somebody sees them.
quiet=(--quiet)
[[ ! -t 1 ]] || quiet=()
python="${folder}/bin/python"
pip=("${python}" -m pip --disable-pip-version-check)

# Does in seconds what takes pip a minute, but knows nothing of pip's settings: is told where to look.
with_uv() {
  local name value
  "${pip[@]}" install --quiet "$(grep -m 1 '^uv==' requirements-dev.txt)" || return 1
  # Lines like global.find-links='…'; those of the environment (:env:) come last, since they count.
  while IFS='=' read -r name value; do
    value="${value//\'/}"
    value="${value//\\n/ }"
    case "${name##*.}" in
      index-*) export UV_DEFAULT_INDEX="${value}" ;;
      extra-index-*) export UV_INDEX="${value}" ;;
      find-links) export UV_FIND_LINKS="${value// /,}" ;;
      no-index) return 1 ;;
    esac
  done < <("${pip[@]}" config list 2>/dev/null | LC_ALL=C sort -r)
  # As pip does: the best of all indexes, and modules compiled at once.
  "${python}" -m uv pip install "${quiet[@]}" --python "${python}" --index-strategy unsafe-best-match --compile-bytecode "$@"
}

install() {
  with_uv "$@" || "${pip[@]}" install "${quiet[@]}" "$@"
}

install "${@/#/--requirement=}"
# Packages that carry data, without what they need themselves; for environments that tests run in.
[[ " $* " != *" requirements-dev.txt "* ]] || install --no-deps --requirement=requirements-examples.txt
