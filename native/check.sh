#!/usr/bin/env bash
# Builds the kernels with AddressSanitizer and UndefinedBehaviorSanitizer and runs their tests, which
# are marked with pytest.mark.kernel. With "attack" as the first argument it feeds hostile files and
# model folders to the kernels and their callers instead, for LABELGROVE_ATTACK seconds. PYTHON is a
# Python with everything installed; other arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
build=build/native-check

preload=
for library in libasan.so libstdc++.so; do # libstdc++ because ASan watches exceptions, too
    path=$("${CXX:-c++}" -print-file-name=$library)
    [[ $path == /* ]] || { echo "native-check: needs GCC and its $library" >&2; exit 1; }
    preload+="$path "
done

"$python" -m pip install -qq --disable-pip-version-check --no-build-isolation --no-deps \
    --upgrade --target $build/site \
    --config-settings=build-dir=$build/cmake --config-settings=cmake.build-type=Debug \
    --config-settings=cmake.define.LABELGROVE_SANITIZE=ON \
    --config-settings=cmake.define.LABELGROVE_WERROR=ON .

# An environment of its own with the same packages: where labelgrove is installed as editable, the
# usual kernels would come first.
site_packages() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
"$python" -m venv --without-pip $build/venv
printf '%s\n' "$PWD/$build/site" "$(site_packages "$python")" \
    > "$(site_packages $build/venv/bin/python)/kernels.pth"

# Left out: tests that take minutes like this, of code that others cover.
slow='every_character or documented_hash or 670091'
mapfile -t tests < <(grep -rl --include='test_*.py' 'pytest.mark.kernel' tests)
run=(-n auto -m kernel -k "not ($slow)" "${tests[@]}")
if [[ ${1:-} == attack ]]; then
    shift
    run=(-n 0 -m "not long_attack" tests/attack/test_{hostile,damaged}_files.py)
fi
LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    exec $build/venv/bin/python -m pytest "${run[@]}" "$@"
