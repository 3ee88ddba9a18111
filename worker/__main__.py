"""``python -m worker``"""

from __future__ import annotations

import sys

from worker.main import main

if __name__ == "__main__":
    sys.exit(main())
