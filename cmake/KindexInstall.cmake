# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# Headers, licence and the CMake package; nothing compiled, so the package fits every architecture.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(kindex_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/kindex")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/kindex"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.hpp")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(TARGETS kindex EXPORT kindex-targets INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT kindex-targets NAMESPACE kindex:: DESTINATION "${kindex_package_dir}")

# SameMinorVersion: while the version is 0.x a minor version may change the API.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/kindex-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
file(WRITE "${PROJECT_BINARY_DIR}/kindex-config.cmake"
     "include(\"\${CMAKE_CURRENT_LIST_DIR}/kindex-targets.cmake\")\n")
install(FILES "${PROJECT_BINARY_DIR}/kindex-config.cmake"
              "${PROJECT_BINARY_DIR}/kindex-config-version.cmake"
        DESTINATION "${kindex_package_dir}")
