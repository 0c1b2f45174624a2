"""The systemd unit, which is the same for every service: its name is what stands behind the @."""

from __future__ import annotations

from string import Template

from croupier.deploy.render.confinement import UNIT
from croupier.deploy.render.layout import HOME, Resources

__all__ = ["UNIT_FILE", "unit"]

UNIT_FILE = "croupier@.service"
_UNIT = Template("""\
# One service of a deployment on one machine (docs/install.md): systemctl enable --now croupier@shuffler-1
#
#   /opt/croupier/bin/croupier             from a virtual environment with croupier[shuffler] (or accountant, analyzer)
#   $home/deployment.toml      public
#   $home/shuffler-1/          service.toml, identity.key, tls.key, tls.crt; the store is made here
#   /etc/croupier/shuffler-1.storage-key   root only, mode 0400; systemd hands it to this service alone
#
# service.toml says where the storage key is:
#   storage_key = "file:/run/credentials/croupier@shuffler-1.service/storage-key"
[Unit]
Description=croupier %i
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart=/opt/croupier/bin/croupier serve %i --dir $home
LoadCredential=storage-key:/etc/croupier/%i.storage-key
User=croupier
Group=croupier
StateDirectory=croupier croupier/%i
StateDirectoryMode=0700
UMask=0077
Restart=on-failure
RestartSec=2
TimeoutStartSec=$start_s

# The service finishes its commits and then ends its workers itself.
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=$stop_s

# Keys and ciphertexts stay in memory: not in a core file, not in swap.
LimitCORE=0
MemorySwapMax=0

${sandbox}LimitNOFILE=$open_files

[Install]
WantedBy=multi-user.target
""")


def unit(limits: Resources) -> str:
    """Returns the unit."""
    return _UNIT.substitute(
        home=HOME, start_s=limits.start_s, stop_s=limits.stop_s, open_files=limits.open_files, sandbox=UNIT
    )
