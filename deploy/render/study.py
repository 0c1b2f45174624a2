"""The process that runs a study: its systemd unit and its container, on the operator's machine.

It has the operator's keys, and listens on loopback alone, where Prometheus reads its metrics.
"""

from __future__ import annotations

from string import Template

from croupier.deploy.render.confinement import CONTAINER, UNIT
from croupier.deploy.render.layout import HOME, Layout, Resources

__all__ = ["STUDY", "STUDY_UNIT_FILE", "study_container", "study_unit"]

STUDY = "study"
"""The name of its container, and of the folder with study.toml, deployment.toml and the operator's keys."""
STUDY_UNIT_FILE = "croupier-study@.service"
_METRICS = "127.0.0.1:8795"
_UNIT = Template("""\
# A study on the operator's machine (docs/studies.md): systemctl enable --now croupier-study@wellbeing
#
#   /opt/croupier/bin/croupier               from a virtual environment with croupier[accountant]
#   $home-operator/deployment.toml   public
#   $home-operator/operator/         the operator's keys; studies are kept below it: back it up
#   $home-operator/wellbeing.toml    the study
#
# A process that is killed goes on where it was. It ends by itself after the last wave, and with 3 where a limit does
# not bear the next one.
[Unit]
Description=croupier study %i
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart=/opt/croupier/bin/croupier study run $home-operator/%i.toml --dir $home-operator --metrics $metrics
User=croupier
Group=croupier
StateDirectory=croupier-operator
StateDirectoryMode=0700
UMask=0077
Restart=on-failure
RestartPreventExitStatus=2 3
RestartSec=10
TimeoutStopSec=$stop_s

# Keys stay in memory: not in a core file, not in swap.
LimitCORE=0
MemorySwapMax=0

${sandbox}LimitNOFILE=$open_files

[Install]
WantedBy=multi-user.target
""")
_CONTAINER = Template(
    """\
  $name:
    image: $image
    profiles: [$name] # starts only with 'docker compose --profile $name up'
    command: [croupier, study, run, $home/study.toml, --dir, $home, --metrics, "$metrics"]
"""
    + CONTAINER.replace("restart: unless-stopped", "restart: on-failure")
    + """\
    network_mode: host # its metrics are on loopback of this machine
    tmpfs: ["/tmp:size=${tmp_mib}m,mode=1777,exec"] # rbcl loads libsodium from there
    volumes:
      - {type: bind, source: ./$name, target: $home}
"""
)


def study_unit(limits: Resources) -> str:
    """Returns the systemd unit; the name behind the @ is that of the study's file."""
    return _UNIT.substitute(
        home=HOME, metrics=_METRICS, stop_s=limits.stop_s, open_files=limits.open_files, sandbox=UNIT
    )


def study_container(layout: Layout) -> str:
    """Returns the lines of a compose file; the study starts only with '--profile study'."""
    return _CONTAINER.substitute(
        layout.limits.model_dump(),
        name=STUDY,
        image=layout.image,
        home=HOME,
        user=layout.limits.user_id,
        metrics=_METRICS,
        why_no_swap="",
    )
