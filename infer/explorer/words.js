// Sentences to try, and notes about the words typed.

function drawExamples() {
  const values = data.about.examples.map(({ title, source }) => [source, title]);
  chips(emptied("examples"), "example", values, at.s, s => type(s, { off: "" }));
}

function tellWords(text) {
  const words = [...new Set(text.split(/[\s,.?!;:]+/).filter(Boolean))];
  const unknown = words.filter(word => data.words.length && !data.words.includes(word.toLowerCase()));
  const split = words.filter(word => !unknown.includes(word) && model.source.encode(word).length > 1);
  const told = [["Not in the training sentences, so expect nonsense", unknown], ["Split, as not one subword", split]];
  const lines = told.filter(([, list]) => list.length).map(([about, list]) => `${about}: ${list.join(", ")}.`);
  element("notes").textContent = lines.join(" ");
}
