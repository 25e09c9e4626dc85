# maco_embed(output.cpp symbol files...): a table of file names and texts, so that the programs need no files beside them.
# Defines `const maco::EmbeddedFile symbol[]` and `const size_t symbol_count` (runtime/embedded.h).
function(maco_embed output symbol)
  set(files ${ARGN})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DSYMBOL=${symbol} "-DFILES=${files}" -DROOT=${CMAKE_SOURCE_DIR}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
endfunction()
