#include "tools/make_checkpoint/sample_text.h"

namespace tandem::make_checkpoint {

const std::string_view kSampleText = R"text(
You are a helpful assistant. Answer the question in one short sentence. Think before you answer, then say what you know.
The capital of France is Paris. The capital of Germany is Berlin. The capital of China is Beijing. What is the capital of
Italy? It is Rome. How many days are there in a week? There are seven days in a week. Hello! Hello, world! How are you
today? I am fine, thank you very much. Could you please help me with this problem? Of course, I will do my best.

A small river runs through the old town. In the morning the baker opens his shop, and the smell of fresh bread fills the
street. Children walk to school and talk about the games they will play after lunch. An old man sits on a bench near the
bridge and reads the newspaper. He has lived here for more than sixty years and knows every house, every tree and every
stone. When somebody asks him for the way, he smiles and tells a story first. The story is never the same, but it always
ends at the right place. In the evening the lights go on one after another, and the water carries their colours slowly
down to the sea. Nobody is in a hurry, and yet everything gets done. That is how it should be, the old man says.

A language model reads a sequence of tokens and predicts the next token. First the prompt is processed, which fills the
cache with keys and values; then the answer is generated, one token at a time. The two phases have different needs: the
first one is limited by arithmetic, the second one by memory bandwidth. Therefore it can be useful to run them on different
machines and to move the cache from one to the other. While one layer is computed, the pages of the layer before it are
already on their way. A request that has been accepted must not be lost, even if a machine fails in the middle of it. The
router chooses a pair of workers, the decode worker reserves its pages, and the prefill worker announces what is complete.
Numbers should be exact, errors should be clear, and tests should be able to fail. If something is not known, say so. There
is nothing wrong with a simple answer when the question is simple; however, because people often ask for something else
than what they need, it is worth asking again. Never guess where you could measure. Between two solutions that both work,
take the one that is easier to explain. Without a reason, nothing should be added; without a test, nothing should be
believed. Some things cannot be tested, though, and those need the most careful reading of all.

Whether the weather is good or bad, we would rather go outside than wait. Yesterday it rained for three hours; tomorrow the
sun will shine again. My brother bought twelve apples, gave five of them to his sister and ate two. How many apples are
left? He has five apples left, because twelve minus five minus two is five. Let us check the result: five plus two plus
five is twelve, so the answer is correct. The train leaves at nine o'clock and arrives at noon, which means that the journey
takes three hours. If it travels eighty kilometres per hour, the distance is two hundred and forty kilometres. Don't forget
your ticket! I can't find it, it's not in my pocket. Isn't it on the table? Yes, there it is. We're lucky.

Ein kleiner Fluss fließt durch die alte Stadt. Am Morgen öffnet der Bäcker sein Geschäft, und der Duft von frischem Brot
zieht durch die Straßen. Die Kinder gehen zur Schule und sprechen über die Spiele, die sie nach dem Mittagessen spielen
wollen. Ein alter Mann sitzt auf einer Bank neben der Brücke und liest die Zeitung. Er wohnt seit mehr als sechzig Jahren
hier und kennt jedes Haus, jeden Baum und jeden Stein. Wenn ihn jemand nach dem Weg fragt, lächelt er und erzählt zuerst
eine Geschichte. Abends gehen die Lichter an, eines nach dem anderen, und das Wasser trägt ihre Farben langsam zum Meer.
Guten Tag! Wie geht es Ihnen? Danke, es geht mir gut. Können Sie mir bitte helfen? Natürlich, sehr gerne. Was ist die
Hauptstadt von Deutschland? Die Hauptstadt von Deutschland ist Berlin. Ich weiß nicht, ob das richtig ist, aber ich glaube
schon. Zwischen zwei Lösungen, die beide funktionieren, nimm die, die sich leichter erklären lässt. Das Ergebnis muss
immer gleich sein, egal in welcher Reihenfolge die Anfragen ankommen. Größe, Übung, Äpfel, Öl, heißen, müssen, dürfen,
während, möglich, wirklich, verschiedene, Rechner, Speicher, Schlüssel, Werte, Seiten, Schicht, Anfrage, Antwort, Fehler.

你好，世界！今天天气很好，我们去公园散步吧。中国的首都是北京，法国的首都是巴黎，德国的首都是柏林。请用一句话回答下面的问题。
一条小河穿过古老的城市。早上，面包师打开商店的门，新鲜面包的香味充满了街道。孩子们走路去学校，谈论午饭后要玩的游戏。
一位老人坐在桥边的长椅上看报纸。他在这里住了六十多年，认识每一座房子、每一棵树和每一块石头。晚上，灯一盏一盏地亮起来。
语言模型读取一串词元，然后预测下一个词元。首先处理提示，把键和值写入缓存；然后一个一个地生成回答。如果不知道，就说不知道。
你能帮我解决这个问题吗？当然可以，我会尽力。谢谢你的帮助！不客气。什么是人工智能？人工智能是计算机科学的一个分支。
こんにちは、世界。今日はいい天気ですね。日本の首都は東京です。ありがとうございます。カタカナとひらがなを使います。

def fibonacci(n):
    """Returns the first n numbers of the sequence."""
    result = [0, 1]
    while len(result) < n:
        result.append(result[-1] + result[-2])
    return result[:n]

class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("pop from an empty stack")
        return self.items.pop()

for i in range(10):
    print(f"{i}: {fibonacci(i)}")

if __name__ == "__main__":
    import sys
    main(sys.argv[1:])

#include <iostream>
#include <string>
#include <vector>

namespace example {

template <typename T>
const T& Largest(const std::vector<T>& values) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    if (values[best] < values[i]) best = i;
  }
  return values[best];
}

}  // namespace example

int main(int argc, char** argv) {
  std::vector<std::string> names = {"router", "prefill", "decode"};
  for (const std::string& name : names) std::cout << name << "\n";
  return 0;
}

{"name": "get_weather", "description": "Returns the weather of a city.", "parameters": {"type": "object", "properties":
{"city": {"type": "string", "description": "The name of the city."}, "unit": {"type": "string", "enum": ["celsius",
"fahrenheit"]}}, "required": ["city"]}}

## Tools
| name | value | unit |
|------|-------|------|
| page | 64 | tokens |
- [x] first item
- [ ] second item
1. https://www.example.com/index.html?query=text&page=2
2. SELECT name, count(*) FROM users WHERE age >= 18 GROUP BY name ORDER BY 2 DESC;
3. $ curl -s http://localhost:8000/v1/models | python3 -m json.tool
)text";

}  // namespace tandem::make_checkpoint
