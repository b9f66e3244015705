# Source this file: it gives a shell in which dagster, dg and geo work as typed, on one profile.
#   source env.sh                          the sandbox
#   GEO_PROFILE=recorded source env.sh     recorded Mapillary data
if [ -n "${BASH_SOURCE:-}" ]; then GEO_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"; else GEO_ROOT="$(cd "$(dirname "$0")" && pwd)"; fi
export GEO_ROOT
export GEO_PROFILE="${GEO_PROFILE:-sandbox}"
# A home set by hand stays; one that this file derived follows the profile.
if [ -z "${GEO_HOME:-}" ] || [ "${GEO_HOME:-}" = "${GEO_HOME_DERIVED:-}" ]; then
    GEO_HOME="$GEO_ROOT/.geo/$GEO_PROFILE"
    GEO_HOME_DERIVED="$GEO_HOME"
    export GEO_HOME_DERIVED
fi
export GEO_HOME
# Without a DAGSTER_HOME the history of runs, and with it staleness, is lost when the command ends.
export DAGSTER_HOME="$GEO_HOME/dagster"
export DAGSTER_MODULE_NAME="geo_assets.definitions"
export DAGSTER_DISABLE_TELEMETRY=1 DO_NOT_TRACK=1
mkdir -p "$DAGSTER_HOME"
ln -sfn "$GEO_ROOT/dagster.yaml" "$DAGSTER_HOME/dagster.yaml"
case ":$PATH:" in *":$GEO_ROOT/deploy/bin:"*) ;; *) export PATH="$GEO_ROOT/deploy/bin:$GEO_ROOT/.venv/bin:$PATH" ;; esac
if [ ! -x "$GEO_ROOT/.venv/bin/geo" ]; then echo "Nothing is installed yet. Run: make setup" >&2; fi
