# For the scripts beside it to source: the machines that are built for, by the names that images have for them; all run Linux.
# shellcheck shell=bash

architectures=(amd64 arm64)
# Where kubectl's plugin runs besides.
plugin_platforms=(darwin-amd64 darwin-arm64 windows-amd64)

# Where hack/install puts pinned programs.
export TOOLS=${TOOLS:-$PWD/target/tools}

# Fails, and says what to install, unless this program is there.
needs() {
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null || {
        echo "hack/$(basename "$0"): $1 is not installed: $2" >&2
        exit 127
    }
}

# The architecture of this machine, or the one or the platform named, as Rust names its target.
architecture_here() {
    [[ $(uname -m) == aarch64 ]] && echo arm64 || echo amd64
}
triple() {
    case $1 in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    darwin-amd64) echo x86_64-apple-darwin ;;
    darwin-arm64) echo aarch64-apple-darwin ;;
    windows-amd64) echo x86_64-pc-windows-gnu ;;
    *)
        echo "hack/$(basename "$0"): $1 is none of: ${architectures[*]} ${plugin_platforms[*]}" >&2
        return 2
        ;;
    esac
}

# The package that a program is of.
package_of() {
    [[ $1 == kubectl-nodegate ]] && echo nodegate-kubectl || echo "$1"
}

# Prints manifests/install.yaml with this image.
install_yaml() {
    sed -E "s|(image: )ghcr.io/nodegate/nodegate:.*|\1$1|" manifests/install.yaml | grep -v '^# Rendered from'
}

# What is shipped is built with the profile `release`; PROFILE=quick builds what a test needs in a third of the time.
build_profile=${PROFILE:-release}

# Where hack/build-binary puts a program: built arm64 nodegate-haproxy.
built() {
    local suffix=''
    [[ $1 != windows-* ]] || suffix=.exe
    echo "${CARGO_TARGET_DIR:-target}/$(triple "$1")/${build_profile/#dev/debug}/$2$suffix"
}
