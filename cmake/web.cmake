# The files of the status page become arrays in the program: build/gen/web_files.c, written when one of them changes.
set(files "")
set(rows "")
foreach(file "page.html:/:text/html" "page.css:/page.css:text/css"
             "page.js:/page.js:text/javascript" "page.svg:/page.svg:image/svg+xml")
  string(REGEX MATCH "^([^:]*):([^:]*):(.*)$" parts "${file}")
  set(path ${CMAKE_SOURCE_DIR}/src/web/${CMAKE_MATCH_1})
  set(url "${CMAKE_MATCH_2}")
  set(type "${CMAKE_MATCH_3}")
  string(REPLACE "." "_" array ${CMAKE_MATCH_1})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND files "static const unsigned char ${array}[] = {${bytes}};\n")
  string(APPEND rows "\t{ \"${url}\", \"${type}; charset=utf-8\", ${array}, sizeof(${array}) },\n")
endforeach()
file(CONFIGURE OUTPUT ${GEN_DIR}/web_files.c @ONLY CONTENT
     "#include \"web/web_impl.h\"\n\n${files}\nconst struct web_file web_files[] = {\n${rows}\t{ 0 }\n};\n")
