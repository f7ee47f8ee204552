// The card: how sure the model is of a word, what else could stand there, and what looks where.

function drawCard() {
  const root = emptied("card");
  const { from, to, weights } = figure;
  root.style = `--first: ${from - 40}px; --second: ${to - from}px`;
  const [first, second, third] = range(3).map(() => make("div", undefined, root));
  const { t, s } = lookedAt();
  const isSource = s !== undefined;
  const n = s ?? t ?? now.leastSure;
  const [words, others] = isSource ? [now.source, now.target] : [now.target, now.source];
  const isChosen = isSource || t !== undefined;
  make("p.key", isChosen ? `Word ${n + 1} of ${words.length}` : "Where it was least sure", first);
  const title = make("h3", words[n], first);

  const head = headIn(crossing());
  const whose = `layer ${layerIn(crossing()) + 1}, ${head === "mean" ? "mean of the heads" : `head ${head + 1}`}`;
  make("p.key", `${isSource ? "What looks at it" : "What it looks at"}: ${whose}`, third);
  const looks = largest(isSource ? weights.map(row => row[n]) : weights[n], 5);
  bars(third, looks.map(([place, weight]) => [others[place], weight]), "cross");
  if (isSource) return;

  const { p, best, lens: [id, q] } = now.choices[n];
  make("span", share(p), title);
  make("p.key", `Layer 1 alone would say “${wordOf(id)}” (${share(q)}).`, first);
  make("p.key", "What could stand here", second);
  bars(second, best.map(([other, r]) => [wordOf(other), r, other === now.output[n]]));
}
