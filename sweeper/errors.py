"""The errors a person can cause and mend; each says what is wrong, where, and what to do."""


class SweeperError(Exception):
    """Bad input or an unusable environment. The command line prints the message and exits with code 2."""


class StudyFileError(SweeperError):
    """Something is wrong with a study file.

    ``where`` is ``file:line`` (or the file alone), ``yaml_path`` names the value, e.g. ``space.grids[0].topk``.
    """

    def __init__(self, message: str, where: str = "", yaml_path: str = "") -> None:
        self.where, self.yaml_path, self.problem = where, yaml_path, message
        super().__init__(": ".join(part for part in (where, yaml_path, message) if part))


class RunNotFoundError(SweeperError):
    """The named run directory or study does not exist or holds no study."""


class StudyChangedError(SweeperError):
    """A study with this name exists, but was measured under other settings."""


class StorageLostError(SweeperError):
    """The storage or the run directory could not be written for too long; the study is resumable."""


class LeaseLostError(SweeperError):
    """Another driver took the study over while this one was silent."""
