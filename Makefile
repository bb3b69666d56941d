# Samehost's targets. Each installs what it needs on a fresh Debian 12 or 13 (as root, with Rust installed), and is quick
# if everything is installed.

CARGO ?= cargo
PREFIX ?= /usr/local
# The only directory in which mount(8) looks for helpers.
SBINDIR ?= /sbin
UNITDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
DESTDIR ?=
MAN = target/man
COMPLETIONS = target/completions
FUZZ_SECONDS ?= 60

CLUSTER_TESTS = -p samehost-rados -p samehost-recovery -p samehost-server -p samehost-tests --test namespace --test cluster --test cluster_ganesha --test cluster_failures

.PHONY: all demo test test-cluster test-cluster-model test-packages test-fast check msrv package image test-image bench bench-cluster nfsload fuzz xfstests man completions install deb clean

all:
	$(CARGO) build --release --locked -p samehost

# Serves a scratch directory, connects over the lane, copies, compares and measures.
demo:
	scripts/setup build
	$(CARGO) build --release --locked -p samehost
	target/release/samehost demo

# All tests: unit tests, the crates' integration tests, and the whole system with foreign clients and servers (root).
test:
	scripts/setup test
	$(CARGO) build --locked -p samehost
	$(CARGO) test --workspace --locked --no-fail-fast

# Several servers on one CephFS, with Debian's Ceph (root). The cluster is in namespaces of its own, and ends with the tests.
test-cluster:
	scripts/setup cluster
	$(CARGO) build --locked -p samehost
	$(CARGO) test --locked $(CLUSTER_TESTS) --no-run
	SAMEHOST_BIN=$(CURDIR)/target/debug/samehost tests/ceph/run target/ceph $(CARGO) test --locked --no-fail-fast $(CLUSTER_TESTS)

# 100,000 histories of simulated clusters, without Ceph.
test-cluster-model:
	scripts/setup build
	SAMEHOST_CLUSTER_HISTORIES=100000 $(CARGO) test --release --locked -p samehost-cluster --test model

# The tests that an ordinary user can run: under three minutes with the dependencies built.
test-fast:
	scripts/test-fast

# The checks that a change must pass before its review.
check:
	scripts/setup build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	scripts/check-licences

# Compiles with the minimum Rust version of Cargo.toml.
msrv:
	scripts/setup build
	scripts/check-msrv

# Packages the crates in target/package as they would be published, and compiles each from its package. cargo resolves those
# that no registry has to the other packages; that needs cargo 1.90 or later.
package:
	scripts/setup build
	$(CARGO) package --workspace --exclude samehost-tests --exclude samehost-bench --locked

# The container image localhost/samehost, also with its version as its tag. For another engine: make image ENGINE=docker.
ENGINE ?= podman
image: all
	scripts/setup image
	packaging/container/stage target/release/samehost target/image
	$(ENGINE) build -t localhost/samehost:latest -t localhost/samehost:$$(target/release/samehost --version | cut -d' ' -f2) target/image

# Runs server and mount from such an image as an ordinary user (root; in namespaces, with podman's storage there).
test-image: all
	scripts/setup image
	packaging/container/test target/release/samehost

# Measures, and writes the results into docs/benchmarks.md. Takes an hour and a half on an otherwise idle machine. Parts only:
# make bench BENCH='--only mount', or a cell: '--only mount:tmpfs:randread:16-jobs', '--only trees:ext4'; --profile profiles it.
# The peer of single operations is libfuse's example program: '--only operations --passthrough-ll PATH'.
bench: nfsload
	$(CARGO) build --release --locked -p samehost -p samehost-bench
	SAMEHOST_BIN=$(CURDIR)/target/release/samehost target/release/samehost-bench --write docs/benchmarks.md $(BENCH)

# Measures a cluster of servers of one CephFS, beside nfs-ganesha (a quarter of an hour; BENCH='--runs 1' takes five minutes).
bench-cluster: nfsload
	scripts/setup cluster
	$(CARGO) build --release --locked -p samehost -p samehost-bench
	SAMEHOST_BIN=$(CURDIR)/target/release/samehost tests/ceph/run target/ceph target/release/samehost-bench --write docs/benchmarks.md --only cluster $(BENCH)

nfsload: target/bench/nfsload

target/bench/nfsload: bench/nfsload/nfsload.c
	scripts/setup bench
	mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -Wall -Wextra -Werror -o $@ $< $$(pkg-config --cflags --libs libnfs)

# Runs each fuzz target for FUZZ_SECONDS, beginning with its committed corpus.
fuzz:
	scripts/setup build
	scripts/fuzz $(FUZZ_SECONDS)

# xfstests' quick group over each data path and on the plain directory; XFSTESTS is a built checkout (tests/xfstests/README.md). Takes hours.
xfstests: all
	mkdir -p target/xfstests
	for data_path in raw wire wire_v4 files files_v4 served tree tree_served tree_uring; do tests/xfstests/run $(XFSTESTS) $$data_path >target/xfstests/$$data_path.txt || exit 1; done

man: all
	rm -rf $(MAN)
	target/release/samehost man $(MAN)

completions: all
	mkdir -p $(COMPLETIONS)
	target/release/samehost completions bash >$(COMPLETIONS)/samehost.bash
	target/release/samehost completions zsh >$(COMPLETIONS)/_samehost
	target/release/samehost completions fish >$(COMPLETIONS)/samehost.fish

# Also installs the units of systemd, with the paths of PREFIX. A configuration file that exists is kept.
install: all man completions
	install -D -m 755 target/release/samehost $(DESTDIR)$(PREFIX)/bin/samehost
	install -d $(DESTDIR)$(SBINDIR)
	ln -sf $(PREFIX)/bin/samehost $(DESTDIR)$(SBINDIR)/mount.samehost
	ln -sf $(PREFIX)/bin/samehost $(DESTDIR)$(SBINDIR)/mount.fuse.samehost
	for section in 1 5 8; do \
		install -d $(DESTDIR)$(PREFIX)/share/man/man$$section && \
		install -m 644 $(MAN)/*.$$section $(DESTDIR)$(PREFIX)/share/man/man$$section || exit 1; \
	done
	ln -sf mount.samehost.8 $(DESTDIR)$(PREFIX)/share/man/man8/mount.fuse.samehost.8
	install -D -m 644 $(COMPLETIONS)/samehost.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/samehost
	install -D -m 644 $(COMPLETIONS)/_samehost $(DESTDIR)$(ZSHDIR)/_samehost
	install -D -m 644 $(COMPLETIONS)/samehost.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/samehost.fish
	install -d $(DESTDIR)$(UNITDIR)
	for unit in samehost.service samehost-mount@.service; do \
		sed 's|/usr/bin/samehost|$(PREFIX)/bin/samehost|' packaging/systemd/$$unit >$(DESTDIR)$(UNITDIR)/$$unit && \
		chmod 644 $(DESTDIR)$(UNITDIR)/$$unit || exit 1; \
	done
	install -D -m 644 packaging/systemd/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/samehost.conf
	install -D -m 644 packaging/systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/samehost.conf
	install -D -m 644 packaging/prometheus/samehost.rules.yml $(DESTDIR)$(PREFIX)/share/samehost/prometheus/samehost.rules.yml
	install -D -m 644 packaging/grafana/samehost.json $(DESTDIR)$(PREFIX)/share/samehost/grafana/samehost.json
	install -d $(DESTDIR)/etc/samehost/mounts
	test -e $(DESTDIR)/etc/samehost/samehost.toml || install -m 644 packaging/samehost.toml $(DESTDIR)/etc/samehost/samehost.toml

# target/deb/samehost_VERSION_ARCH.deb, for this machine's Debian and later ones. Needs no network if the crates are fetched.
deb:
	scripts/setup deb
	packaging/build-deb

# Tries the package of make deb on fresh systems of Debian 12 and 13, each booted in a container: installation, restart,
# upgrade under load, removal (root). The systems are fetched from Debian once, into target/.
test-packages: deb
	scripts/setup packages
	packaging/test/run

clean:
	$(CARGO) clean
