export CXX="@PROGRAM@"
export CXXFLAGS="${CFLAGS:-} ${CXXFLAGS:-}"
