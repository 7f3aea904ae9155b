"""Whether the hosted service's own parser takes an expression.

Reads one JSON string a line, writes `ok` or the first line of the complaint for each.
"""

import json
import sys

from octorules_wirefilter import parse_expression

for line in sys.stdin:
    error = parse_expression(json.loads(line)).get("error")
    print("ok" if error is None else json.dumps(error), flush=True)
