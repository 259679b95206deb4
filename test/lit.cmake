# The text tests (test/lit.cfg.py), as target check-lit and as the CTest test
# "lit"; and the op and pass pages, as target plum-doc.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(PLUM_LIT NAMES lit llvm-lit HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)

list(GET MLIR_INCLUDE_DIRS 0 PLUM_MLIR_INCLUDE_DIR)
configure_file(lit.site.cfg.py.in lit.site.cfg.py @ONLY)
add_custom_target(check-lit
  COMMAND ${PLUM_LIT} -sv ${CMAKE_CURRENT_BINARY_DIR}
  DEPENDS plum plum-opt plum-run
  COMMENT "Running the lit tests"
  USES_TERMINAL)
add_test(NAME lit COMMAND ${PLUM_LIT} -sv ${CMAKE_CURRENT_BINARY_DIR})
set_tests_properties(lit PROPERTIES TIMEOUT 1200)

# Generated from the descriptions in the .td files, never committed.
set(PLUM_DOC_DIR ${PROJECT_BINARY_DIR}/docs)
set(pages)
function(plum_page page source)
  add_custom_command(OUTPUT ${PLUM_DOC_DIR}/${page}.md
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PLUM_DOC_DIR}
    COMMAND mlir-tblgen ${ARGN} -I ${PROJECT_SOURCE_DIR} -I ${PLUM_MLIR_INCLUDE_DIR}
            ${PROJECT_SOURCE_DIR}/${source} -o ${PLUM_DOC_DIR}/${page}.md
    DEPENDS ${PROJECT_SOURCE_DIR}/${source}
    COMMENT "Writing ${page}.md")
  set(pages ${pages} ${PLUM_DOC_DIR}/${page}.md PARENT_SCOPE)
endfunction()
plum_page(AssocDialect dialects/Assoc/AssocOps.td -gen-dialect-doc -dialect=assoc)
plum_page(ChunkDialect dialects/Chunk/ChunkOps.td -gen-dialect-doc -dialect=chunk)
plum_page(TransformPasses include/plum/Transforms/Passes.td -gen-pass-doc)
plum_page(ConversionPasses include/plum/Conversion/Passes.td -gen-pass-doc)
add_custom_target(plum-doc DEPENDS ${pages})
