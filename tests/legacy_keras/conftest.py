"""These tests are collected only where tf.keras is tf_keras: `make test-tf-keras`."""

import os

collect_ignore_glob = [] if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else ["test_*.py"]
