# To be sourced, as the older guide does: source $torch_ccl_path/env/setvars.sh
_trireme_this=${BASH_SOURCE:-$0}
. "${_trireme_this%/*}/../../oneccl_bindings_for_pytorch/env/setvars.sh"
unset _trireme_this
