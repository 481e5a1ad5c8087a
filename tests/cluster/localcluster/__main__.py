"""The command: reads arguments, calls ``cluster``, prints results to stdout and progress to stderr. Decides nothing."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from localcluster import cluster, progress, settings
from localcluster.cluster import Cluster
from localcluster.errors import ClusterError
from localcluster.settings import ClusterOptions


def main(arguments: list[str]) -> int:
    """Runs one command.

    Returns:
        The exit code: 0, or 1 where a person has to mend something first.
    """
    parsed = _parser().parse_args(arguments)
    try:
        parsed.run(parsed)
    except ClusterError as error:
        progress.say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        progress.say("interrupted")
        return 130
    return 0


def _up(parsed: argparse.Namespace) -> None:
    options = ClusterOptions(
        name=parsed.name,
        nodes=parsed.nodes,
        gpus=parsed.gpus,
        kubernetes=_version(parsed),
        config=parsed.config.resolve(),
    )
    chosen = _cluster(parsed)
    chosen.up(options)
    print(chosen.kubeconfig)


def _down(parsed: argparse.Namespace) -> None:
    if parsed.all:
        cluster.down_all(settings.read_folders())
    else:
        _cluster(parsed).down()


def _load(parsed: argparse.Namespace) -> None:
    _cluster(parsed).load(parsed.image)


def _base_image(parsed: argparse.Namespace) -> None:
    cluster.ensure_base_image(settings.read_folders())
    print(settings.BASE_IMAGE)


def _prepare(parsed: argparse.Namespace) -> None:
    cluster.prepare(settings.read_folders(), _version(parsed))


def _env(parsed: argparse.Namespace) -> None:
    chosen = _cluster(parsed)
    if not chosen.is_ready:
        raise ClusterError(f"cluster {chosen.name} is not up")
    if chosen.docker_host:
        print(f"export DOCKER_HOST={shlex.quote(chosen.docker_host)}")
    print(f"export KUBECONFIG={shlex.quote(str(chosen.kubeconfig))}")
    print(f'export PATH="$PATH":{shlex.quote(str(chosen.programs))}')


def _status(parsed: argparse.Namespace) -> None:
    for line in cluster.describe(settings.read_folders()):
        print(line)


def _cluster(parsed: argparse.Namespace) -> Cluster:
    options = ClusterOptions(name=parsed.name)
    return Cluster(folders=settings.read_folders(), name=options.name)


def _version(parsed: argparse.Namespace) -> str | None:
    return settings.parse_kubernetes_version(parsed.kubernetes) if parsed.kubernetes else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcluster", description="A kind cluster on this machine alone.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default=settings.DEFAULT_NAME, help="the cluster's name (%(default)s)")

    versioned = argparse.ArgumentParser(add_help=False)
    versioned.add_argument("--kubernetes", metavar="VERSION", help="such as 1.34.4 (the pinned one)")

    up = commands.add_parser("up", parents=[named, versioned], help="make the cluster; prints its kubeconfig's path")
    up.add_argument("--nodes", type=int, help="one control plane and the rest workers (as the configuration says)")
    up.add_argument("--gpus", type=int, default=0, help="pretend GPUs on each node that takes work (%(default)s)")
    up.add_argument("--config", type=Path, default=settings.KIND_CONFIG, help="kind's configuration (kind-config.yaml)")
    up.set_defaults(run=_up)

    down = commands.add_parser("down", parents=[named], help="remove the cluster, and our engine with the last one")
    down.add_argument("--all", action="store_true", help="remove every cluster that was made here")
    down.set_defaults(run=_down)

    load = commands.add_parser("load", parents=[named], help="copy images from the engine into the cluster")
    load.add_argument("image", nargs="+")
    load.set_defaults(run=_load)

    base = commands.add_parser("base-image", help=f"make sure that the engine has {settings.BASE_IMAGE}")
    base.set_defaults(run=_base_image)

    prepare = commands.add_parser("prepare", parents=[versioned], help="make all that takes long, and start no cluster")
    prepare.set_defaults(run=_prepare)

    env = commands.add_parser("env", parents=[named], help="print what a shell is to eval to use the cluster")
    env.set_defaults(run=_env)

    status = commands.add_parser("status", help="say which clusters and whether our engine are up")
    status.set_defaults(run=_status)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
