"""Whether updates on a CPU are made natively, and by how many threads."""

from __future__ import annotations

from trainer.algorithms.common.cuda_graph import KERNELS, NATIVE
from trainer.algorithms.mtsac.native.library import load
from trainer.config.training import Training
from trainer.errors import ConfigError, UndecidedError
from trainer.machine.building import NoLibraryError, UnreadLibraryError

#: Operations of a layer of the critics from which a second thread is worth its messages (bench/second_thread.py).
WORTH_A_THREAD = 2 * 128 * 256 * 256


def choose_native(training: Training, recorded: str | None) -> tuple[str, str | None]:
    """(the way for `numeric`, a sentence for the user or None): as it was `recorded`; else, at a run's beginning,
    natively where critics are plain, batches whole and products not rounded, torch has one thread, and there is a
    library.

    Errors: ConfigError where a run was begun natively, and there is no library: its bits are nowhere else;
    UndecidedError where it is not known whether there is one.
    """
    off_policy = training.off_policy
    is_whole = off_policy.shards == 1 and off_policy.precision == "float32"
    is_meant = is_whole and training.network.critic_net != "residual" and training.threads == 1
    if recorded not in {None, NATIVE} or (recorded is None and not is_meant):
        return KERNELS, None
    try:
        load()
    except UnreadLibraryError as error:
        raise UndecidedError(
            f"the library of updates cannot be had now ({error}); nothing was decided, for a training keeps to the way "
            "that it is begun by: start again when it can be, or set XDG_CACHE_HOME to another folder"
        ) from error
    except NoLibraryError as error:
        if recorded == NATIVE:
            raise ConfigError(
                f"updates of this training were made by a library that is not to be had here ({error}); install a C "
                "compiler, name one in CC, or set XDG_CACHE_HOME to a folder that a machine with one shares"
            ) from error
        return KERNELS, f"updates are made without the library that would make them quicker ({error})"
    return NATIVE, None


def threads_for(training: Training, cores: int) -> int:
    """Of native updates: two, which leave the same bits, where there is a second core, products are large, and each of
    them is computed by one.
    """
    widest = max(training.network.critic_hidden)
    is_worth_it = 2 * training.off_policy.batch_size * widest**2 >= WORTH_A_THREAD
    return 2 if training.threads == 1 and cores > 1 and is_worth_it else 1
