# llama.cpp, built in tree from a pinned source. Graft needs private ggml headers, which llama.cpp
# does not install, so a system-wide build cannot be used.
#
# GRAFT_LLAMA_CPP_DIR points at the source; scripts/setup.sh fills the default location.

if(DEFINED ENV{GRAFT_CACHE})
  set(GRAFT_CACHE_DEFAULT "$ENV{GRAFT_CACHE}")
else()
  set(GRAFT_CACHE_DEFAULT "$ENV{HOME}/.cache/graft")
endif()
set(GRAFT_LLAMA_CPP_DIR "${GRAFT_CACHE_DEFAULT}/src/llama.cpp-v0.5.0" CACHE PATH
    "Source of llama.cpp v0.5.0")

if(NOT EXISTS "${GRAFT_LLAMA_CPP_DIR}/include/llama.h")
  message(FATAL_ERROR
    "No llama.cpp source at ${GRAFT_LLAMA_CPP_DIR}. Run scripts/setup.sh, or set "
    "GRAFT_LLAMA_CPP_DIR to a checkout of llama.cpp v0.5.0.")
endif()

# The private structs that grafting/ relies on belong to exactly this version.
file(STRINGS "${GRAFT_LLAMA_CPP_DIR}/CMakeLists.txt" GRAFT_LLAMA_VERSION_LINES
     REGEX "^set\\(LLAMA_VERSION_(MAJOR|MINOR|PATCH) [0-9]+\\)")
string(REGEX REPLACE "[^0-9;]" "" GRAFT_LLAMA_VERSION "${GRAFT_LLAMA_VERSION_LINES}")
if(NOT GRAFT_LLAMA_VERSION STREQUAL "0;5;0")
  message(FATAL_ERROR
    "${GRAFT_LLAMA_CPP_DIR} is llama.cpp ${GRAFT_LLAMA_VERSION}; Graft needs 0.5.0.")
endif()
file(STRINGS "${GRAFT_LLAMA_CPP_DIR}/ggml/src/ggml-backend-impl.h" GRAFT_GGML_API
     REGEX "define GGML_BACKEND_API_VERSION 2$")
if(NOT GRAFT_GGML_API)
  message(FATAL_ERROR "${GRAFT_LLAMA_CPP_DIR}: the ggml backend interface is not version 2.")
endif()

set(BUILD_SHARED_LIBS OFF)
set(LLAMA_BUILD_COMMON ON CACHE BOOL "" FORCE)
foreach(part TESTS EXAMPLES APP MTMD UI)
  set(LLAMA_BUILD_${part} OFF CACHE BOOL "" FORCE)
endforeach()
# llama-server and llama-quantize, for benches and models; scripts/setup.sh builds them so, with the
# same flags and hence the same cached objects as our own build.
option(GRAFT_LLAMA_TOOLS "Add the targets of llama.cpp's own programs" OFF)
set(LLAMA_BUILD_TOOLS ${GRAFT_LLAMA_TOOLS} CACHE BOOL "" FORCE)
set(LLAMA_BUILD_SERVER ${GRAFT_LLAMA_TOOLS} CACHE BOOL "" FORCE)
set(LLAMA_USE_PREBUILT_UI OFF CACHE BOOL "" FORCE)
set(LLAMA_OPENSSL OFF CACHE BOOL "" FORCE)
set(LLAMA_SUBPROCESS OFF CACHE BOOL "" FORCE)
set(LLAMA_ALL_WARNINGS OFF CACHE BOOL "" FORCE)
# Graft gives ggml a thread pool of its own; OpenMP's spins beside it (design.md section 10).
set(GGML_OPENMP OFF CACHE BOOL "" FORCE)
# BLAS would be a second device of type ACCEL and compete with the grafting device.
set(GGML_BLAS OFF CACHE BOOL "" FORCE)
set(GGML_LLAMAFILE ON CACHE BOOL "" FORCE)
set(GGML_CCACHE OFF CACHE BOOL "" FORCE)
# One GPU through the grafting device. ggml's attention kernels for CUDA are left out: they alone
# compile for longer than all the rest, and ggml then computes attention by matrix products.
option(GRAFT_CUDA "Build ggml's CUDA backend, for --device gpu" OFF)
set(GGML_CUDA ${GRAFT_CUDA} CACHE BOOL "" FORCE)
set(GGML_CUDA_FA OFF CACHE BOOL "" FORCE)

include(FetchContent)
FetchContent_Declare(llama_cpp SOURCE_DIR "${GRAFT_LLAMA_CPP_DIR}")

# llama.cpp is always optimised, also in our debug and sanitizer builds: its objects are then the
# same in every preset and come from the compiler cache.
set(graft_saved_build_type "${CMAKE_BUILD_TYPE}")
set(CMAKE_BUILD_TYPE Release)
FetchContent_MakeAvailable(llama_cpp)
set(CMAKE_BUILD_TYPE "${graft_saved_build_type}")

# No AMX: its kernels differ by the number of rows, so a request's bits would depend on its company.
# Besides, g++ 12 drops most of the tile configuration that llama.cpp stores before it loads it (the
# intrinsic names only its first 8 bytes), and the first tile instruction is then an illegal one.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(ggml-cpu PRIVATE -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
endif()
