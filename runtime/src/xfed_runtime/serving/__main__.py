"""`python -m xfed_runtime.serving BUNDLE`."""

import sys

from xfed_runtime.serving.command import main

sys.exit(main())
