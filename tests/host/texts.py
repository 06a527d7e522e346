"""Two texts of each of twelve kinds, for the table of token estimates.

What a conversation with a coding assistant is made of. The second text of a kind shows what was
learned from the first.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

__all__ = ["SMOLLM2_COUNTS", "TEXTS"]

_ENGLISH = (
    """The harbour had been quiet since the storm, and the keeper used the time to repair what \
the wind had loosened. He began with the shutters on the western side, then climbed the narrow \
stairs to look at the lamp. Two of the panes were cracked. They would hold for another winter, \
he thought, but not for two, and the company was slow to send anything that could not be carried \
by hand. In the afternoon a boat came round the point with letters, flour and a boy who wanted to \
see the light. The keeper showed him how the clockwork turned the lens and why the oil had to be \
warmed before it was poured. The boy asked whether anyone had ever counted the ships that passed. \
Nobody had, as far as the keeper knew, although the book in the drawer went back sixty years and \
every page was full. They sat down at the table and started with the first line. By the time the \
boat left, they had reached a hundred and forty, and agreed to go on when the weather allowed it.
""",
    """Most teams discover the cost of a slow test suite gradually. At first it is only a minute, \
and a minute is easy to ignore. Then somebody adds a service that has to be started, another \
person adds a data set, and before long people stop running the tests before they push. The usual \
answer is to buy faster machines, which helps for a few months. A better answer is to look at what \
the tests actually do. In our experience more than half of the time is spent waiting: for a port \
to open, for a queue to drain, for a timer that was set to five seconds because that seemed safe. \
Replace each of these with an event that says when the thing has happened, and the suite becomes \
both faster and more reliable. It is not exciting work, and it rarely appears in anybody's plan \
for the quarter, but it pays for itself within weeks. Start with the ten slowest tests, measure \
again after every change, and write down what you found so that the next person need not repeat it.
""",
)
_GERMAN = (
    """Der Hafen war seit dem Sturm ruhig geblieben, und der Leuchtturmwärter nutzte die Zeit, um \
auszubessern, was der Wind gelockert hatte. Er begann mit den Fensterläden an der Westseite und \
stieg dann die schmale Treppe hinauf, um nach der Lampe zu sehen. Zwei der Scheiben hatten Risse. \
Einen Winter würden sie noch überstehen, dachte er, aber kaum zwei, und die Gesellschaft schickte \
nur ungern etwas, das man nicht in der Hand tragen konnte. Am Nachmittag kam ein Boot um die \
Landspitze, mit Briefen, Mehl und einem Jungen, der das Licht sehen wollte. Der Wärter zeigte ihm, \
wie das Uhrwerk die Linse drehte und weshalb das Öl erwärmt werden musste, bevor man es eingoss. \
Ob jemals jemand die vorüberfahrenden Schiffe gezählt habe, fragte der Junge. Soweit der Wärter \
wusste, hatte das niemand getan, obwohl das Buch in der Schublade sechzig Jahre zurückreichte und \
jede Seite vollgeschrieben war. Sie setzten sich an den Tisch und fingen mit der ersten Zeile an.
""",
    """Die meisten Arbeitsgruppen bemerken erst allmählich, was eine langsame Testsammlung kostet. \
Anfangs dauert sie nur eine Minute, und eine Minute lässt sich leicht übersehen. Dann kommt ein \
Dienst hinzu, der gestartet werden muss, jemand anderes ergänzt einen Datensatz, und bald führt \
niemand mehr die Prüfungen aus, bevor er seine Änderungen veröffentlicht. Üblicherweise werden \
dann schnellere Rechner beschafft, was für einige Monate hilft. Besser ist es, sich anzusehen, was \
die Prüfungen tatsächlich tun. Nach unserer Erfahrung geht mehr als die Hälfte der Zeit mit Warten \
verloren: auf einen Anschluss, der geöffnet wird, auf eine Warteschlange, die sich leert, auf eine \
Zeitschaltung, die vorsichtshalber auf fünf Sekunden gestellt wurde. Ersetzt man jede davon durch \
ein Ereignis, das meldet, wann etwas geschehen ist, wird alles zugleich schneller und verlässlicher.
""",
)
_CHINESE = (
    """暴风雨过后，港口一直很平静，守灯人利用这段时间修理被风吹松的东西。他先修好西侧的百叶窗，然后爬上\
狭窄的楼梯去检查灯。有两块玻璃已经裂开了。他想，它们还能再撑过一个冬天，但撑不过两个，而公司总是迟迟不肯送来\
那些不能用手提着的东西。下午，一条小船绕过岬角驶来，带着信件、面粉和一个想看灯塔的男孩。守灯人给他看发条装置\
怎样转动透镜，又解释为什么灯油在倒进去之前必须先加热。男孩问，有没有人数过经过这里的船。据守灯人所知，从来没有\
人数过，尽管抽屉里的那本册子可以追溯到六十年前，而且每一页都写满了。他们在桌边坐下，从第一行开始数起。等到小船\
离开的时候，他们已经数到了一百四十，并且约定等天气允许时再继续。
""",
    """大多数团队都是逐渐才发现缓慢的测试要付出多大的代价。起初只需要一分钟，而一分钟很容易被忽略。后来有人\
增加了一个必须先启动的服务，另一个人又加入了一批数据，没过多久，大家在提交之前就不再运行测试了。通常的办法是\
购买更快的机器，这在几个月之内确实有用。更好的办法是看看测试到底在做什么。根据我们的经验，一半以上的时间都花在\
等待上：等待端口打开，等待队列清空，等待一个为了保险而设成五秒的定时器。把它们逐一换成能够说明事情何时发生的\
事件，测试就会变得既快又可靠。这不是什么令人兴奋的工作，也很少出现在任何人的季度计划里，但几个星期之内就能收回成本。
""",
)
_CODE = (
    '''class RetryPolicy:
    """Decide whether a failed request is tried again, and how long to wait first."""

    def __init__(self, max_attempts: int = 3, base_delay: float = 0.5) -> None:
        if max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {max_attempts}")
        self._max_attempts = max_attempts
        self._base_delay = base_delay

    def delay(self, status: int, attempt: int, retry_after: float | None) -> float | None:
        if status not in _WORTH_RETRYING or attempt >= self._max_attempts:
            return None
        if retry_after is not None:
            return min(retry_after, _LONGEST_WAIT)
        return self._base_delay * 2 ** (attempt - 1)


async def fetch_all(session: Session, urls: Iterable[str]) -> dict[str, bytes]:
    results: dict[str, bytes] = {}
    async with asyncio.TaskGroup() as group:
        for url in urls:
            group.create_task(_fetch_into(session, url, results))
    return results
''',
    """export function useDebouncedValue<T>(value: T, delayMs: number): T {
  const [debounced, setDebounced] = useState<T>(value);

  useEffect(() => {
    const handle = window.setTimeout(() => setDebounced(value), delayMs);
    return () => window.clearTimeout(handle);
  }, [value, delayMs]);

  return debounced;
}

export async function loadUsers(client: ApiClient, query: string): Promise<User[]> {
  const response = await client.get(`/api/v1/users?q=${encodeURIComponent(query)}`);
  if (!response.ok) {
    throw new HttpError(response.status, await response.text());
  }
  const body = (await response.json()) as { items: User[] };
  return body.items.filter((user) => user.isActive && user.email !== null);
}
""",
)
_MARKDOWN = (
    """# Upgrade to version 4

Version 4 changes the **configuration file** and the way _plugins_ are loaded.

1. Stop the service: `systemctl stop relay`.
2. Convert the configuration with `relay migrate --from 3`.
3. Start it again, and look at the log.

| setting | before | now |
|---|---|---|
| `listen` | `0.0.0.0:80` | `127.0.0.1:8080` |
| `workers` | one per core | `auto` |
| `log.level` | `info` | `warning` |

> The old file is kept as `relay.toml.bak`. Nothing is deleted.

See [the release notes](https://example.org/relay/4.0) for the whole list, and
[the forum](https://example.org/forum) if something does not work.
""",
    """## Installation

You need Python 3.11 or newer. Then:

```sh
python -m venv .venv
.venv/bin/pip install "relay[server]"
.venv/bin/relay serve --port 8080
```

### Options

- `--port NUMBER`: where to listen; **8080** unless given.
- `--store URL`: where to keep data, such as `sqlite:///relay.db`.
- `--verbose`: write every request to the log.

### What can go wrong

* *Address already in use*: another program listens there. Use `--port`.
* *Permission denied*: ports below 1024 need [special rights](https://example.org/ports).
""",
)


def _json(dice: random.Random) -> str:
    def record() -> dict[str, Any]:
        return {
            "id": dice.randrange(10**6),
            "name": dice.choice(("alpha", "beta", "gamma")) + str(dice.randrange(100)),
            "tags": dice.sample(("new", "sale", "blue", "large", "cotton"), 2),
            "price": round(dice.random() * 100, 2),
            "in_stock": dice.random() < 0.5,
            "location": {"lat": round(dice.random() * 90, 6), "lon": round(dice.random() * 90, 6)},
            "updated_at": f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T12:00:00Z",
        }

    return json.dumps([record() for _ in range(12)], separators=(",", ":"))


def _tools(dice: random.Random) -> str:
    names = ("read_file", "search_code", "run_command", "list_directory", "create_issue")
    about = (
        *("The absolute path of the file to read.", "Whether to look into sub-directories."),
        *("A regular expression to search for.", "How many seconds to wait for the end."),
    )
    tools = [
        {
            "type": "function",
            "name": name,
            "description": f"Use this to {name.replace('_', ' ')}. It returns text.",
            "parameters": {
                "type": "object",
                "properties": {
                    field: {
                        "type": dice.choice(("string", "integer")),
                        "description": dice.choice(about),
                    }
                    for field in dice.sample(("path", "pattern", "recursive", "timeout"), 3)
                },
                "required": ["path"],
                "additionalProperties": False,
            },
        }
        for name in dice.sample(names, 4)
    ]
    return json.dumps(tools, separators=(",", ":"))


def _log(dice: random.Random) -> str:
    return "\n".join(
        f"2026-11-17T09:{dice.randrange(60):02}:{dice.randrange(60):02}.{dice.randrange(1000):03}Z "
        f"{dice.choice(('INFO', 'WARN', 'ERROR'))} worker-{dice.randrange(8)} "
        f"GET /api/v1/orders/{dice.randrange(10**5)} {dice.choice((200, 404, 503))} "
        f"{dice.random() * 900:.1f}ms request={dice.randbytes(6).hex()}"
        for _ in range(24)
    )


def _numbers(dice: random.Random) -> str:
    return "\n".join(",".join(f"{dice.random() * 1000:.3f}" for _ in range(8)) for _ in range(25))


def _emoji(dice: random.Random) -> str:
    pictures = "😀😂🥰🚀🎉🔥🙏💯🤔😎🌍🍕🎸🐶🐱🌈📈💡🔧🤖👍🎁🏆🐛"
    words = ("great work", "love it", "so good", "thanks", "ship it", "wow")
    return " ".join(
        f"{dice.choice(words)} {''.join(dice.choices(pictures, k=dice.randint(1, 3)))}"
        for _ in range(60)
    )


def _twice(make: Callable[[random.Random], str]) -> tuple[str, str]:
    return make(random.Random(1)), make(random.Random(2))


TEXTS: dict[str, tuple[str, str]] = {
    "English prose": _ENGLISH,
    "German prose": _GERMAN,
    "Chinese prose": _CHINESE,
    "source code": _CODE,
    "Markdown": _MARKDOWN,
    "minified JSON": _twice(_json),
    "tool schemas": _twice(_tools),
    "log lines": _twice(_log),
    "numbers": _twice(_numbers),
    "hexadecimal": _twice(lambda dice: dice.randbytes(700).hex()),
    "base 64": _twice(lambda dice: base64.b64encode(dice.randbytes(900)).decode()),
    "chat with emoji": _twice(_emoji),
}
# What SmolLM2-135M-Instruct counts, a small vocabulary that cuts numbers into single digits:
# printed by `bench/estimates.py WEIGHTS.gguf`, because its tokenizer is not at hand in a test.
SMOLLM2_COUNTS: dict[str, tuple[int, int]] = {
    "English prose": (211, 208),
    "German prose": (358, 349),
    "Chinese prose": (550, 450),
    "source code": (280, 223),
    "Markdown": (222, 179),
    "minified JSON": (1092, 1089),
    "tool schemas": (427, 417),
    "log lines": (1633, 1632),
    "numbers": (1573, 1575),
    "hexadecimal": (1255, 1246),
    "base 64": (954, 979),
    "chat with emoji": (460, 481),
}
