"""Looks at a tuning database: sorted, each result measured and within limits."""
import json
import sys

database = json.load(open(sys.argv[1]))
entries = database["entries"]
keys = [(e["layer"], e["signature"], e["target"], e["precision"], e["device"],
         e["compiler"], e["rows"], e["tokens"]) for e in entries]
said = ["sorted" if keys == sorted(keys) else "not sorted"]
results = [r for e in entries for r in e["results"]]
measured = all(r["ms"] > 0 and r["reps"] >= 3 and r["spread"] >= 0
               and r["date"][:2] == "20" for r in results)
said.append("all measured" if results and measured else "not all measured")
errors = [r["errors"] for r in results]
good = all(e[x] <= e[x + "_limit"] for e in errors for x in ("r", "w", "m", "state"))
said.append("within limits" if good else "above limits")
print(f"{len(entries)} entries, " + ", ".join(said))
