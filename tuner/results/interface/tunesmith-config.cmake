# find_package(tunesmith CONFIG REQUIRED) with this folder in CMAKE_PREFIX_PATH; then link with tunesmith::model, with
# tunesmith::static (libmodel.a, declared in libmodel.h) if the bundle has that, or with tunesmith::headers to load
# libraries at run time.
if(NOT TARGET tunesmith::model)
  add_library(tunesmith::headers INTERFACE IMPORTED)
  set_target_properties(tunesmith::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}"
    INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  add_library(tunesmith::model SHARED IMPORTED)
  set_target_properties(tunesmith::model PROPERTIES
    IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/libmodel.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_LINK_LIBRARIES tunesmith::headers)
  if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/libmodel.a")
    add_library(tunesmith::static STATIC IMPORTED)
    set_target_properties(tunesmith::static PROPERTIES
      IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/libmodel.a"
      INTERFACE_LINK_LIBRARIES "tunesmith::headers;m;pthread")
  endif()
endif()
