# graft_options: how our own code is compiled. Third-party code never sees these flags.
add_library(graft_options INTERFACE)
target_compile_options(graft_options INTERFACE
  ${GRAFT_OPTIMIZE} -g1 -Wall -Wextra -Wpedantic -Wconversion -Werror
  # g++ 12 warns of overlaps inside its own string (its bug 105651) and of uninitialised members
  # inside its own optional and variant (its bug 105562).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
target_compile_definitions(graft_options INTERFACE GRAFT_VERSION="${PROJECT_VERSION}")
if(GRAFT_ASSERTIONS)
  target_compile_definitions(graft_options INTERFACE _GLIBCXX_ASSERTIONS)
endif()
if(GRAFT_SANITIZE)
  target_compile_options(graft_options INTERFACE
    -fsanitize=${GRAFT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(graft_options INTERFACE -fsanitize=${GRAFT_SANITIZE})
  if(GRAFT_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Boost.Asio uses fences, which this sanitizer does not model; it locks as well. With this
    # instrumentation g++ 12 loses the sizes of vectors that it sees being made.
    target_compile_options(graft_options INTERFACE -Wno-tsan -Wno-array-bounds
                           -Wno-stringop-overflow)
  endif()
endif()
target_include_directories(graft_options INTERFACE "${PROJECT_SOURCE_DIR}/src")

# graft_library(folder DEPS folder... PRIVATE target...)
# One library per folder of src/: graft_<folder> from its .cpp files (sub-folders included), and
# graft_<folder>_test from its _test.cpp files, registered with CTest. DEPS are Graft folders,
# PRIVATE third-party targets that only this folder may use.
function(graft_library folder)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE" ${ARGN})
  set(target graft_${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")

  list(TRANSFORM ARG_DEPS PREPEND graft_)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE graft_options ${ARG_PRIVATE})
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${ARG_DEPS})
    target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}/src")
  endif()

  if(tests)
    add_executable(${target}_test ${tests})
    target_link_libraries(${target}_test PRIVATE
      ${target} graft_options ${ARG_PRIVATE} GTest::gtest_main)
    target_compile_definitions(${target}_test PRIVATE GRAFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    add_test(NAME ${folder} COMMAND ${target}_test)
    set_tests_properties(${folder} PROPERTIES LABELS unit)
  endif()
endfunction()

# Third-party headers are included as system headers: their warnings are not ours.
add_library(graft_third_party_hwy INTERFACE)
target_link_libraries(graft_third_party_hwy INTERFACE ${GRAFT_HWY_LIBRARY})

add_library(graft_third_party_llama INTERFACE)
target_link_libraries(graft_third_party_llama INTERFACE llama)
target_include_directories(graft_third_party_llama SYSTEM INTERFACE
  "${GRAFT_LLAMA_CPP_DIR}/include" "${GRAFT_LLAMA_CPP_DIR}/ggml/include")

# ggml's private headers, for the one file in grafting/ that registers the backend.
add_library(graft_third_party_ggml_private INTERFACE)
target_link_libraries(graft_third_party_ggml_private INTERFACE graft_third_party_llama)
target_include_directories(graft_third_party_ggml_private SYSTEM INTERFACE
  "${GRAFT_LLAMA_CPP_DIR}/ggml/src")

# llama-common has flat, very general header names; only text/ may see it.
add_library(graft_third_party_llama_common INTERFACE)
target_link_libraries(graft_third_party_llama_common INTERFACE llama-common)
target_include_directories(graft_third_party_llama_common SYSTEM INTERFACE
  "${GRAFT_LLAMA_CPP_DIR}/common")
