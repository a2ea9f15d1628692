export CC="@PROGRAM@"
# As conda's own compilers do: nothing in a binary tells where it was built.
export CFLAGS="-ffile-prefix-map=${SRC_DIR:-$PWD}=/usr/local/src/conda -ffile-prefix-map=${PREFIX:-$CONDA_PREFIX}=/usr/local/src/conda-prefix ${CFLAGS:-}"
export LDFLAGS="-Wl,-rpath,${PREFIX:-$CONDA_PREFIX}/lib -L${PREFIX:-$CONDA_PREFIX}/lib ${LDFLAGS:-}"
