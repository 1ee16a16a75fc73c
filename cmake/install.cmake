# What `make install` puts where, below CMAKE_INSTALL_PREFIX (multiarch where the system has it):
# libraries, headers, sheaf.pc, programs, mount(8)'s helper, man pages, bash completion, systemd units, documents.
set(MAN_DIR ${CMAKE_SOURCE_DIR}/docs/man)
set(DIST_DIR ${CMAKE_SOURCE_DIR}/dist)
set(SHEAF_UNIT_DIR lib/systemd/system CACHE STRING "where systemd units go, below the prefix")

# ---- all that is installed, and the examples: what `make up` builds ----
add_custom_target(product)

# ---- library, headers, sheaf.pc ----
file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/*.h)
if(TARGET libsheaf)
  add_dependencies(product libsheaf)
  install(TARGETS libsheaf LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${headers} ${CMAKE_SOURCE_DIR}/include/sheaf_ckpt.f90 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(${DIST_DIR}/sheaf.pc.in ${CMAKE_BINARY_DIR}/sheaf.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/sheaf.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# ---- MPI-IO and checkpoints, for each MPI that was there ----
foreach(mpi mpich openmpi)
  if(TARGET mpiio-${mpi})
    add_dependencies(product mpiio-${mpi})
    install(TARGETS mpiio-${mpi} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    add_dependencies(product ckpt-${mpi})
    install(TARGETS ckpt-${mpi} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()

# ---- programs: daemons (names that end in d) into sbin, the others into bin ----
foreach(f ${mains})
  get_filename_component(name ${f} NAME_WE)
  add_dependencies(product ${name})
  if(name MATCHES "d$")
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_SBINDIR})
  else()
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# mount(8) looks into /sbin alone: `make install` puts a link there, a package has it there.
install(PROGRAMS ${DIST_DIR}/mount.fuse.sheaf DESTINATION ${CMAKE_INSTALL_SBINDIR})

# ---- man pages; every public function has a page that leads to libsheaf.3 ----
file(GLOB pages CONFIGURE_DEPENDS ${MAN_DIR}/*.[1-8])
foreach(page ${pages})
  string(REGEX MATCH "[1-8]$" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
foreach(header ${headers})
  file(STRINGS ${header} lines REGEX "^SHEAF_API .*sheaf_[a-z0-9_]+\\(")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^SHEAF_API [^(]*(sheaf_[a-z0-9_]+)\\(.*" "\\1" call "${line}")
    if(EXISTS ${MAN_DIR}/${call}.3)
      continue()
    endif()
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/man3/${call}.3 CONTENT ".so man3/libsheaf.3\n")
    install(FILES ${CMAKE_BINARY_DIR}/man3/${call}.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
  endforeach()
endforeach()

# ---- completion, systemd, documents ----
install(FILES ${DIST_DIR}/sheaf.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME sheaf)
configure_file(${DIST_DIR}/sheaf@.service.in ${CMAKE_BINARY_DIR}/sheaf@.service @ONLY)
configure_file(${DIST_DIR}/sheaf-nfsd.service.in ${CMAKE_BINARY_DIR}/sheaf-nfsd.service @ONLY)
configure_file(${DIST_DIR}/sheaf-web.service.in ${CMAKE_BINARY_DIR}/sheaf-web.service @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/sheaf@.service ${CMAKE_BINARY_DIR}/sheaf-nfsd.service
        ${CMAKE_BINARY_DIR}/sheaf-web.service ${DIST_DIR}/sheaf.target
        DESTINATION ${SHEAF_UNIT_DIR})
install(FILES ${DIST_DIR}/sheaf.sysusers DESTINATION lib/sysusers.d RENAME sheaf.conf)
file(GLOB documents CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/*.md)
install(FILES ${documents} ${CMAKE_SOURCE_DIR}/docs/web.png ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE
        ${DIST_DIR}/mnt-sheaf.mount ${DIST_DIR}/grafana-sheaf.json ${DIST_DIR}/prometheus-sheaf.yml
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
