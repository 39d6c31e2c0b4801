# Deedbook: `make demo` and `make test` are all that a fresh machine with Python 3.11, make and git needs. Where the system's
# own Python has no venv (Debian, Ubuntu): `apt install python3-venv`, or `make PYTHON=` another.

PYTHON ?= python3
BIN := .venv/bin
PACKAGES := ledger projections consumers deedbook

# With this variable set, as in many containers, each of the demo's dozen processes compiles the whole source again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install tools demo test cover check bench bench-smoke bench-human bench-reader bench-secrets docs screenshots mutants faults verifier distributions lowest highest contract clean lock

# `make demo` installs what it needs, everything else adds what developers need. Locks hold every package with its hashes, so
# nothing is resolved (--no-deps) and nothing is built with a package that is not locked (--no-build-isolation: nkeys and
# Deedbook itself have no wheel). Python compiles what it imports; compiling all that is installed takes 5 s more.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation --use-pep517
INSTALLED := .venv/installed-for

install: $(INSTALLED)-developing

$(INSTALLED)-developing: locks/develop.lock $(INSTALLED)-demo
	@echo "Installing what tests and checks need into .venv: about 420 MB, most of a minute."
	@$(INSTALL) --require-hashes -r locks/develop.lock
	@touch $@

$(INSTALLED)-demo: locks/demo.lock pyproject.toml $(INSTALLED)-building
	@$(INSTALL) --require-hashes -r locks/demo.lock
	@$(INSTALL) --editable .
	@touch $@

# A wheel is an archive: unpacking the pip that comes with Python takes 0.3 s, `venv` with ensurepip 5 s.
PIP_WHEEL := import ensurepip, pathlib, sysconfig; \
  folder = sysconfig.get_config_var("WHEEL_PKG_DIR") or pathlib.Path(ensurepip.__file__).parent / "_bundled"; \
  print(next(pathlib.Path(folder).glob("pip-*.whl")))
$(INSTALLED)-building: locks/build.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Deedbook needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "this Python cannot make environments: apt install python3-venv, or make PYTHON=python3.12 …"; exit 1; }
	@echo "Installing what the demo needs into .venv: about 100 MB, 15 seconds with a fast network. Nothing outside this folder changes."
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip .venv
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(BIN)/python -m zipfile -e "$$($(PYTHON) -c '$(PIP_WHEEL)')" \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@$(INSTALL) --require-hashes -r locks/build.lock
	@touch $@

demo: $(INSTALLED)-demo
	@$(BIN)/deed demo $(ARGS)

# Four at a time on two cores: fewer leave the cores idle while tests wait for processes and timers. Each begins with a quarter of
# its own and takes from the others at its end, so that fixtures of a module or folder are made once, not in all four.
test: install tools
	$(BIN)/python -m pytest -n 4 --dist worksteal -q

# What tests call and no wheel brings: strace, tmux, SoftHSM, Chromium with its driver, Firefox and a Chinese font are installed where
# that is allowed; tests that lack one, or Node with npm (whose packages they install from locks), are not run and say so.
# Lists of packages may be missing or old: then they are renewed, once. What loads has a time limit, and is not tried again
# after it; what unpacks has none: killed, it leaves a machine that installs nothing more.
TOOLS := strace:strace tmux:tmux softhsm2-util:softhsm2 chromium:chromium chromedriver:chromium-driver firefox-esr:firefox-esr
APT := timeout -k 5 300 env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=60
tools:
	@apt() { test -z "$$is_late" && { $(APT) "$$@" || { test $$? != 124 || is_late=yes; false; }; }; }; \
	load() { apt install --yes --no-install-recommends --download-only $$1; }; \
	install() { test "$$(id -u)" = 0 && { load $$1 || { test -z "$$is_new" && is_new=yes && apt update && load $$1; }; } && \
	  env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends --no-download $$1; }; \
	for one in $(TOOLS); do \
	  command -v $${one%:*} >/dev/null || install $${one#*:} >/dev/null 2>&1 </dev/null || \
	    echo "$${one%:*} is missing (apt-get install $${one#*:}): its tests are not run (failing disks by strace, a real" \
	      "terminal by tmux, keys in a token by softhsm2, pages in real browsers by chromium and firefox)"; \
	done; \
	! command -v fc-list >/dev/null || fc-list :lang=zh | grep -q . || install fonts-noto-cjk >/dev/null 2>&1 </dev/null || \
	  echo "no font has Chinese (apt-get install fonts-noto-cjk): pages are tested without it"

# The same tests, measured: apart, because counting lines and branches makes every test half as long again. Without those that
# a browser takes part in: what they reach is reached without one, too.
cover: install tools
	$(BIN)/python -m pytest -n 2 -q --cov --cov-report= --ignore-glob='*/test_browser_*'
	@for package in $(PACKAGES); do \
	  echo "line and branch coverage of $$package: $$($(BIN)/coverage report --include="$$package/*" --format=total)%"; \
	  $(BIN)/coverage report --include="$$package/*" --fail-under=90 --skip-covered --skip-empty >/dev/null || \
	    { $(BIN)/coverage report --include="$$package/*" --skip-covered; exit 1; }; \
	done

check: install
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry . --no-ansi
	$(BIN)/python tests/published_contract.py --check
	$(BIN)/python tests/house.py
	$(BIN)/python tests/mutants --check

bench: install
	$(BIN)/python -m tests.bench

# The tests with the lowest versions that pyproject.toml allows, or the highest that there are, in an environment of their own (with
# uv); TESTS names some of them.
TESTS ?=
lowest: RESOLUTION := lowest-direct
highest: RESOLUTION := highest
lowest highest: tools
	uv venv --quiet --clear --python $(PYTHON) build/$@
	uv pip install --quiet --python build/$@/bin/python --resolution $(RESOLUTION) --group dev \
	  --editable '.[dates,hsm,mcp,postgres,prov,server,tokens,web]'
	build/$@/bin/python -m pytest -n 4 --dist worksteal -q $(TESTS)

# Not how fast anything is: only whether every group still comes to its end.
bench-smoke: install
	$(BIN)/python -m tests.bench --smoke

# Writes build/human-evaluation.csv, fifty pairs to be judged blind; called again, reads the filled sheet back.
bench-human: install
	$(BIN)/python -m tests.bench.brief_quality.human

# Writes build/reader-exams, questions about reasonings beside briefs of several sizes, and their key; once readers have
# answered (build/reader-exams/README.md says how), `READER=grade` prints what each got out of each.
READER ?= write
bench-reader: install
	$(BIN)/python -m tests.bench.brief_quality.reader $(READER)

# Counts how many texts of FOLDERS the search for secrets refuses.
FOLDERS ?=
bench-secrets: install
	$(BIN)/python tests/false_alarms.py $(FOLDERS)

# Writes build/screenshots: every page of the dashboard over the demo's past, in two widths, light and dark.
screenshots: install tools
	$(BIN)/python tests/screenshots.py

# Writes build/docs: the pages as a site that loads nothing from another host. A warning, such as a link that leads nowhere, is
# an error.
docs: install
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Small faults of the core, each made in a copy of the tree: the tests that the list names must notice every one.
mutants: install
	$(BIN)/python tests/mutants

# The long run: every test that counts its kills, flips or rounds, with as many as were promised (200 kills, 1,000 flips), and
# every property with more examples. It takes hours, so it prints a line for each test as it ends.
faults: install tools
	DEEDBOOK_FAULTS=25 $(BIN)/python -m pytest -n 2 --dist worksteal -v --timeout 7200 --durations 25 \
	  $$(grep -rlE '^from (faults|tampering) import|hypothesis|mark\.long_run' tests --include='test_*.py')

# The distribution deedbook-verify, as wheel and source archive: the verify.py of every bundle, and nothing else. Equal sources give
# equal bytes.
verifier: install
	$(BIN)/python deploy/verifier/build.py build/verifier

# All that a release publishes, in build/distributions: Deedbook, deedbook-verify, and beside them what Deedbook's lock installs (an
# SBOM in CycloneDX, made with uv). Equal sources give equal bytes of the archives.
distributions: install
	rm -rf build/distributions build/sbom
	$(BIN)/python -m hatchling build -d build/distributions
	$(BIN)/python deploy/verifier/build.py build/distributions
	mkdir -p build/sbom
	uvx --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible \
	  -o build/sbom/deedbook.cdx.json locks/image.lock

contract: install
	$(BIN)/python tests/published_contract.py

# One lock a purpose, each package in the same version everywhere. The demo has a lock of its own because all extras take three
# times as long to install, and 200 MB (`tokens` alone 48).
LOCK := uv pip compile --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet
DEMO := pyproject.toml --extra mcp --extra server --extra web
IMAGE := $(DEMO) --extra dates --extra otel --extra postgres --extra prov --extra tokens
lock:
	$(LOCK) $(IMAGE) --extra hsm --group dev -o locks/develop.lock
	$(LOCK) $(IMAGE) -c locks/develop.lock -o locks/image.lock
	$(LOCK) $(DEMO) -c locks/develop.lock -o locks/demo.lock
	$(LOCK) --group pyproject.toml:build -c locks/develop.lock -o locks/build.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
