"""What a study needs on a cluster beside the code: its file and its prompts, in a directory of their own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from sweeper.config import StudyConfig
from sweeper.errors import StudyFileError, SweeperError
from sweeper.study_file.reading import HUB_ID, read_study_file
from sweeper.study_file.variables import VARIABLE
from sweeper.study_file.yaml_file import YamlFile, YamlPath
from sweeper.workload.presets import find_preset
from sweeper.workload.sources import read_conversations

MAP = "acceptance_map.parquet"
MAX_BYTES = 100 * 2**20
"""Ray's job server takes no larger working directory: https://docs.ray.io/en/latest/ray-core/handling-dependencies.html"""

PROMPTS: YamlPath = ("workload", "prompts")
ACCEPTANCE_MAP: YamlPath = ("search", "acceptance_map")


@dataclass(frozen=True)
class StudyPackage:
    """``directory`` is sent along as the job's working directory; ``file`` is the study file inside it.

    ``cluster_variables`` are those that are filled in on the cluster's nodes, since they may be secrets.
    """

    config: StudyConfig
    directory: Path
    file: str
    cluster_variables: tuple[str, ...]


def package_study(file: Path, to: Path) -> StudyPackage:
    """Check a study as far as that can be done here, and put what it needs into the empty directory ``to``.

    ``${VAR}`` is filled in here, except in ``engine.env`` and ``storage``. Checkpoints stay where they are: on the
    cluster's nodes, or on the hub.

    Raises:
        StudyFileError: something is wrong with the study file, or a checkpoint's path means nothing on a cluster.
        SweeperError: the prompts cannot be used.
    """
    config = _checked(file)
    _refuse_relative_checkpoints(config, file)
    prompts = _local_prompts(config, file)
    if prompts:
        shutil.copyfile(prompts, to / f"prompts{prompts.suffix}")
        workload = config.workload.model_copy(update={"prompts": f"prompts{prompts.suffix}"})
        config = config.model_copy(update={"workload": workload})
    known = _local_map(config, file)
    if known:
        shutil.copyfile(known, to / MAP)
        config = config.model_copy(
            update={"search": config.search.model_copy(update={"acceptance_map": MAP})}
        )
    text = yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False, width=110)
    (to / "study.yaml").write_text(text, "utf-8")
    _refuse_large(to)
    return StudyPackage(config, to, "study.yaml", _variables(config))


def package_directory(file: Path, directory: Path) -> StudyPackage:
    """The same for a study that lives in a directory which is sent as it is (ignore files count, Ray checks its size).

    Raises:
        SweeperError: as above, or the study file is not in the directory.
    """
    try:
        inside = file.resolve().relative_to(directory.resolve(strict=True))
    except FileNotFoundError:
        raise SweeperError(f"--working-dir {directory}: no such directory") from None
    except ValueError:
        raise SweeperError(f"--working-dir {directory}: does not hold the study file {file}") from None
    config = _checked(file)
    prompts = _local_prompts(config, file)
    for path, where in ((prompts, PROMPTS), (_local_map(config, file), ACCEPTANCE_MAP)):
        if path and not path.is_relative_to(directory.resolve()):
            raise _error(file, where, f"{path} is not in --working-dir {directory}")
    return StudyPackage(config, directory, str(inside), _variables(config))


def _checked(file: Path) -> StudyConfig:
    config = read_study_file(file)
    prompts = _local_prompts(config, file)
    if prompts:  # reading them shows what is wrong with them
        workload = config.workload.model_copy(update={"prompts": str(prompts)})
        read_conversations(config.model_copy(update={"workload": workload}))
    return config


def _local_prompts(config: StudyConfig, file: Path) -> Path | None:
    """The prompt file, None for a preset and for an absolute path that is not here but may be on the cluster."""
    text = config.workload.prompts
    path = (file.resolve().parent / Path(text).expanduser()).resolve()
    if path.is_file():
        return path
    if Path(text).is_absolute() or find_preset(text):
        return None
    raise _error(file, PROMPTS, f"no such file: {path}")


def _local_map(config: StudyConfig, file: Path) -> Path | None:
    """The acceptance map; None where the study has none, and for an absolute path that may be on the cluster."""
    text = config.search.acceptance_map
    if not text:
        return None
    path = (file.resolve().parent / Path(text).expanduser()).resolve()
    if path.is_file():
        return path
    if Path(text).is_absolute():
        return None
    raise _error(file, ACCEPTANCE_MAP, f"no such file: {path}")


def _refuse_relative_checkpoints(config: StudyConfig, file: Path) -> None:
    paths: dict[YamlPath, str] = {("engine", "model"): config.engine.model}
    for name, draft in config.space.drafts.items():
        paths["space", "drafts", name, "path"] = draft.path
    for where, text in paths.items():
        here = file.resolve().parent / text
        if not Path(text).is_absolute() and (here.is_dir() or not HUB_ID.fullmatch(text)):
            raise _error(
                file,
                where,
                f"{text!r} is relative to the study file; checkpoints are not sent to the cluster: give a path that "
                "all its nodes have, or a hub id",
            )


def _error(file: Path, where: YamlPath, message: str) -> StudyFileError:
    """An error with the line of the value it is about."""
    return YamlFile(file).error(message, where)


def _refuse_large(directory: Path) -> None:
    size = sum(path.stat().st_size for path in directory.iterdir())
    if size > MAX_BYTES:
        raise SweeperError(
            f"the study and its prompts are {size / 2**20:.0f} MiB, and Ray takes {MAX_BYTES / 2**20:.0f}: put the "
            "prompts where all nodes see them and name the absolute path, or use fewer"
        )


def _variables(config: StudyConfig) -> tuple[str, ...]:
    texts = [*config.engine.env.values(), config.storage or ""]
    names = {match[1] for text in texts for match in VARIABLE.finditer(str(text)) if match[2] is None}
    return tuple(sorted(names - {"SWEEPER_TESTBED"}))
