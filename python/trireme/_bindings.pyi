from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Backend, ErrorType, Store

class ProcessGroupCCL(Backend):
    class Options(Backend.Options):
        def __init__(self, timeout: timedelta = ...) -> None: ...

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta = ...,
        group_name: str = ...,
        global_ranks: Sequence[int] = ...,
    ) -> None: ...
    @property
    def options(self) -> Backend.Options: ...
    def get_error(self) -> ErrorType: ...
    def describe(self) -> str: ...
    def monitored_barrier(self, timeout: timedelta = ..., wait_all_ranks: bool = ...) -> None: ...
