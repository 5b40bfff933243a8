"""slurmdbd and a MariaDB of its own, so that a test cluster has a history and limits on users."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from daemons import PATIENCE_S, Daemons, wait_for

NEEDED = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")
#: The cluster's user belongs to it, so that jobs are accepted where limits are enforced.
ACCOUNT = "dev"


class AccountingDaemons:
    """The two daemons in a cluster's folder. `path`: the PATH on which their programs are."""

    def __init__(self, folder: Path, daemons: Daemons, path: str) -> None:
        self.folder = folder
        self.daemons = daemons
        self._path = path
        self._socket = folder / "run" / "mysql.sock"
        self._data = folder / "mysql"

    def start(self, *, port: int, host: str, munge_socket: Path) -> None:
        """Start both and wait until they listen. Errors: RuntimeError with what mariadb-install-db said."""
        user = pwd.getpwuid(os.geteuid()).pw_name
        self._start_mariadb("mysql" if os.geteuid() == 0 else user)
        conf = self.folder / "slurmdbd.conf"
        values = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={munge_socket}",
            "DbdHost": host,
            "DbdAddr": "127.0.0.1",
            "DbdPort": str(port),
            "SlurmUser": user,
            "LogFile": f"{self.folder}/log/slurmdbd.log",
            "PidFile": f"{self.folder}/run/slurmdbd.pid",
            "CommunicationParameters": "NoInAddrAny",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "localhost",  # that is: the socket in MYSQL_UNIX_PORT
            "StorageUser": "root",
            "StorageLoc": "slurm_acct",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        conf.chmod(0o600)  # slurmdbd insists
        self.start_slurmdbd()

    def start_slurmdbd(self) -> None:
        """Start slurmdbd alone, for instance after `daemons.end("slurmdbd")`."""
        self.daemons.start(
            "slurmdbd", [self._where("slurmdbd"), "-D"], extra_env={"MYSQL_UNIX_PORT": str(self._socket)}
        )

    def _start_mariadb(self, user: str) -> None:
        # Not the machine's: at its start a server removes the temporary tables of every other one there.
        temporary = self.folder / "mysql-tmp"
        for folder in (self._data, temporary):
            folder.mkdir()
            if os.geteuid() == 0:
                shutil.chown(folder, user)
        (self.folder / "run").chmod(0o1777)
        if os.geteuid() == 0:
            self.folder.chmod(0o755)
        env = {"TMPDIR": str(temporary)}
        made = subprocess.run(
            [
                self._where("mariadb-install-db"), "--no-defaults", f"--datadir={self._data}", f"--user={user}",
                "--auth-root-authentication-method=normal", "--skip-test-db",
            ],
            env=os.environ | env, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        if made.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed:\n{made.stdout}{made.stderr}")
        options = [
            "--no-defaults", f"--datadir={self._data}", f"--user={user}", f"--socket={self._socket}",
            "--skip-networking", f"--pid-file={self._data}/pid", "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
            "--skip-name-resolve", "--performance-schema=OFF",
        ]  # fmt: skip
        self.daemons.start("mariadbd", [self._where("mariadbd"), *options], extra_env=env)
        wait_for(self._socket.exists, "MariaDB's socket", PATIENCE_S)

    def _where(self, name: str) -> str:
        found = shutil.which(name, path=self._path)
        if found is None:
            raise FileNotFoundError(f"{name} is not installed: run tests/real/install.sh")
        return found
