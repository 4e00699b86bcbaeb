PYTHON ?= .venv/bin/python

build:
	$(PYTHON) tools/build.py
