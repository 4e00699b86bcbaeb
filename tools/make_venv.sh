#!/bin/bash
# tools/make_venv.sh FOLDER LOCK NAME...: installs requirements/NAME.in, as locked in requirements/LOCK.txt, into a virtual
# environment, which it makes first.
set -euo pipefail
folder="$1"
lock="requirements/$2.txt"
newest=13
[[ "$2" != tf2.19 ]] || newest=12 # it has no wheels for 3.13
shift 2

if [[ ! -x "${folder}/bin/pip" ]]; then
  usable="import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, ${newest}))"
  for python in python3 python3.13 python3.12 python3.11 none; do
    "${python}" -c "${usable}" 2>/dev/null && break
  done
  if [[ "${python}" == none ]]; then
    echo "No Python 3.11 to 3.${newest} with venv is on PATH: install one (Debian, Ubuntu: python3 and python3-venv)." >&2
    exit 1
  fi
  rm -rf "${folder}"
  "${python}" -m venv "${folder}"
fi
echo "Installing $* into ${folder}; this takes a minute or two"
"${folder}/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "${lock}" \
  $(printf -- '--requirement=requirements/%s.in ' "$@")
