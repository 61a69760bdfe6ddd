# docs/ops.md is what the tool prints today:  cmake -DTEGULA=… -DPAGE=… -P docs_ops.cmake
execute_process(COMMAND ${TEGULA} ops --markdown OUTPUT_VARIABLE fresh RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${TEGULA} ops --markdown: exit ${status}")
endif()
file(READ ${PAGE} page)
if(NOT page STREQUAL fresh)
  message(FATAL_ERROR "docs/ops.md is stale: build/release/tegula ops --markdown > docs/ops.md")
endif()
