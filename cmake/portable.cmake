# Makes the portable folder: cmake -DPROGRAM=... -DWORKER=... -DPEERS=... -DFOLDER=... -DPATCHELF=... -P portable.cmake
#
# FOLDER gets the program, the scripts of PEERS in peers/, and in lib/ the worker's library and every shared library that it needs, other than glibc's own and the driver's, each
# with RUNPATH $ORIGIN (a RUNPATH is not inherited). Whatever has the same or a newer glibc then runs it.
cmake_minimum_required(VERSION 3.25)
set(from_the_system
    "^ld-linux" "^libc\\.so" "^libm\\.so" "^libmvec\\.so" "^libpthread\\.so" "^libdl\\.so" "^librt\\.so" "^libresolv\\.so"
    "^libutil\\.so" "^libanl\\.so" "^libnss_" "^libcuda\\.so" "^libnccl\\.so" "^libnvidia-ml\\.so")
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} MODULES ${WORKER} RESOLVED_DEPENDENCIES_VAR libraries
     UNRESOLVED_DEPENDENCIES_VAR missing PRE_EXCLUDE_REGEXES ${from_the_system})
if(missing)
  message(FATAL_ERROR "The portable folder cannot be made: ${PROGRAM} needs ${missing}, which this machine does not have.")
endif()

# place(<file> <target> <runpath>): a patched copy, put there by one rename so that running programs keep theirs.
function(place file target runpath)
  get_filename_component(folder ${target} DIRECTORY)
  get_filename_component(name ${target} NAME)
  file(MAKE_DIRECTORY ${folder})
  set(partial ${folder}/.${name}.partial)
  file(COPY_FILE ${file} ${partial})
  file(CHMOD ${partial} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  execute_process(COMMAND ${PATCHELF} --set-rpath ${runpath} ${partial} COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME ${partial} ${target})
endfunction()

file(GLOB stale ${FOLDER}/lib/*)
foreach(library IN LISTS libraries WORKER)
  get_filename_component(name ${library} NAME)
  file(REAL_PATH ${library} real)
  place(${real} ${FOLDER}/lib/${name} "$ORIGIN")
  list(REMOVE_ITEM stale ${FOLDER}/lib/${name})
endforeach()
if(stale)
  file(REMOVE ${stale})
endif()
# Python scripts, no more: a folder of its own, because Python looks for modules beside a script.
file(REMOVE_RECURSE ${FOLDER}/peers)
file(COPY ${PEERS}/ DESTINATION ${FOLDER}/peers FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
get_filename_component(name ${PROGRAM} NAME)
place(${PROGRAM} ${FOLDER}/${name} "$ORIGIN/lib")
