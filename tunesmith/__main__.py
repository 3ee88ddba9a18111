from __future__ import annotations

import sys

from tunesmith.cli.main import main

sys.exit(main())
