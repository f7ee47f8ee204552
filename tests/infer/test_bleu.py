"""Every variant of BLEU against the reference tools' numbers, and against small cases computed by hand."""

import gzip
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sacrebleu
import sacremoses

from vaswani.infer.scores import bleu

SHARED = Path(__file__).parents[3] / "shared"
SYSTEM = SHARED / "fixtures/bleu/newstest2014.en-de.system.de.gz"
REFERENCE = SHARED / "data/wmt/en-de/newstest2014.de.gz"


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


@pytest.mark.slow
@pytest.mark.skipif(not (SYSTEM.exists() and REFERENCE.exists()), reason="newstest2014 is not on this machine")
def test_newstest2014_scores_equal_the_reference_tools():
    """sacrebleu for the first two; tokenizer.perl and multi-bleu.perl for the others."""
    scores = bleu.all_scores(lines(SYSTEM), lines(REFERENCE), "de")
    published = {"sacrebleu": 25.36, "chrf": 56.77, "bleu_tok": 25.42, "bleu_split": 25.93, "bleu_paper": 26.79}
    assert {name: round(scores[name], 2) for name in published} == published


HYPOTHESIS = ["Der Hund sieht die alte Katze .", "Sie liest ein neues Buch ."]
REFERENCES = ["Der Hund sieht die alte Maus .", "Sie liest ein neues Buch ."]


def test_tokenised_bleu_equals_the_formula_by_hand():
    """13 tokens per side; the wrong word, last but one, spoils 1 of 13, 2 of 11, 2 of 9 and 2 of 7 n-grams."""
    expected = 100 * math.prod([12 / 13, 9 / 11, 7 / 9, 5 / 7]) ** 0.25
    assert bleu.tokenised_bleu(HYPOTHESIS, REFERENCES, "de").value == pytest.approx(expected)


@pytest.mark.parametrize(("language", "tokens"), [("en", 6), ("de", 7)])
def test_tokens_are_those_of_the_language(language: str, tokens: int):
    """In English it's is two tokens, it and 's, and in German three; the first of them is wrong."""
    expected = 100 * math.prod((tokens - n) / (tokens - n + 1) for n in (1, 2, 3, 4)) ** 0.25
    found = bleu.tokenised_bleu(["it's a good old dog"], ["he's a good old dog"], language).value
    assert found == pytest.approx(expected)


def test_several_references_are_scored_as_sacrebleu_scores_them():
    hypotheses = [*HYPOTHESIS, "Wir gehen ."]
    first, second = (
        [*REFERENCES, "Wir laufen jetzt ."],
        ["Die alte Katze sieht der Hund .", "Ein Buch .", "Wir gehen ."],
    )
    found = bleu.all_scores(hypotheses, first, "de", others=[second])
    both = [first, second]
    expected = {
        "sacrebleu": sacrebleu.corpus_bleu(hypotheses, both),
        "sacrebleu_lc": sacrebleu.corpus_bleu(hypotheses, both, lowercase=True),
        "bleu_tok": sacrebleu.corpus_bleu(hypotheses, both, tokenize="none", smooth_method="none", force=True),
        "chrf": sacrebleu.corpus_chrf(hypotheses, both),
        "chrf_pp": sacrebleu.corpus_chrf(hypotheses, both, word_order=2),
        "ter": sacrebleu.corpus_ter(hypotheses, both),
    }
    assert {name: found[name] for name in expected} == {name: score.score for name, score in expected.items()}
    assert found["exact_match"] == pytest.approx(200 / 3)
    named = {name for name, signature in found["signatures"].items() if "nrefs:2" in signature}
    assert named == set(found["signatures"])
    alone = bleu.all_scores(hypotheses, first, "de")
    assert all(found[name] != alone[name] for name in (*expected, "bleu_paper", "bleu_split", "bleu_tok_lc"))


def test_a_reference_of_fewer_lines_is_refused():
    with pytest.raises(ValueError, match="2 hypotheses for 1 references"):
        bleu.all_scores(HYPOTHESIS, REFERENCES, "de", others=[REFERENCES[:1]])


def test_a_short_hypothesis_pays_the_brevity_penalty():
    score = bleu.tokenised_bleu(["a b c d e f g h"], ["a b c d e f g h i j"], "de").value
    assert score == pytest.approx(100 * math.exp(1 - 10 / 8))


def test_unsmoothed_bleu_without_a_matching_fourgram_is_zero():
    assert bleu.tokenised_bleu(["a b c x"], ["a b c d"], "de").value == 0
    assert bleu.sacrebleu(["a b c x"], ["a b c d"]).value > 0


def test_case_matters_except_in_the_lower_cased_readings():
    scores = bleu.all_scores(["der hund sieht die alte katze."], ["Der Hund sieht die alte Katze."], "de")
    assert scores["sacrebleu_lc"] == pytest.approx(100) and scores["bleu_tok_lc"] == pytest.approx(100)
    assert scores["sacrebleu"] < 50 and scores["bleu_tok"] < 50 and scores["exact_match"] == 0


def test_the_papers_reading_counts_the_parts_of_a_compound():
    system, reference = ["Die US-Wahl war gestern in aller Munde"], ["Die US-Wahlen war gestern in aller Munde"]
    scores = bleu.all_scores(system, reference, "de")
    assert scores["bleu_paper"] == scores["bleu_split"] != scores["bleu_tok"]
    # Die US ##AT##-##AT## Wahl war gestern in aller Munde: 9 tokens, the fourth is wrong.
    assert scores["bleu_paper"] == pytest.approx(100 * math.prod([8 / 9, 6 / 8, 4 / 7, 2 / 6]) ** 0.25)


def test_the_papers_reading_forgives_the_style_of_quotes():
    reference = ["Er sagt: \"Das ist 'gut' so\"."]
    for system in ("Er sagt: „Das ist ‚gut‘ so“.", "Er sagt: “Das ist ‘gut’ so”."):
        scores = bleu.all_scores([system], reference, "de")
        assert scores["bleu_paper"] == pytest.approx(100) and scores["bleu_split"] < 100


def test_the_papers_reading_forgives_guillemets_and_nothing_else_of_them():
    reference = ['Er sagt: "Das ist gut".']
    for system in ("Er sagt: »Das ist gut«.", "Er sagt: «Das ist gut»."):
        scores = bleu.all_scores([system], reference, "de")
        assert scores["bleu_paper"] == pytest.approx(100) and scores["bleu_split"] < 100
    assert bleu.all_scores(["Er sagt: ›Das ist gut‹."], reference, "de")["bleu_paper"] < 100  # not of the paper's list


def test_tokens_are_those_of_sacremoses():
    lines = ["z. B. am 3. Mai. und so. Weiter. Ab.c. 1.2. x. ö. É. é.", "Nr. 5. nr. art. pp. 3 a.m. Ende", "«a.» ... ."]
    for language in ("de", "en", "fr"):
        moses = sacremoses.MosesTokenizer(lang=language)
        plain = [re.sub(r"(?<=[^\s.])\.$", " .", moses.tokenize(line, return_str=True)) for line in lines]
        assert bleu.tokenise(lines, language) == plain


def test_letters_are_not_collected_anew_for_every_full_stop(monkeypatch: pytest.MonkeyPatch):
    bleu.tokenise(["a"], "de")  # which collects them once
    collected = []

    class Letters(str):
        def __iter__(self) -> Iterator[str]:
            collected.append(self)
            return super().__iter__()

    for name in ("IsLower", "IsAlpha"):
        monkeypatch.setattr(sacremoses.MosesTokenizer, name, Letters(getattr(sacremoses.MosesTokenizer, name)))
    assert bleu.tokenise(["hund. katze. x.y. c d."], "de") == ["hund. katze. x.y. c d ."]
    assert not collected


def test_compounds_split_as_the_perl_script_does():
    assert bleu.split_compounds("ein ab-cd-ef - x") == "ein ab ##AT##-##AT## cd ##AT##-##AT## ef - x"
    assert bleu.split_compounds("a-b-c") == "a ##AT##-##AT## b-c"


def test_moses_tokens_are_escaped_and_end_with_a_split_full_stop():
    line, number, dots = bleu.tokenise(['Er & "sie", z. B. [hier].', "Wir warten an Gate 24.", "Und dann..."], "de")
    assert line == "Er &amp; &quot; sie &quot; , z. B. &#91; hier &#93; ."
    assert number == "Wir warten an Gate 24 ."
    assert dots == "Und dann ..."


def test_exact_match_is_the_share_of_equal_lines_in_percent():
    assert bleu.exact_match(["a b ", "a c", "", "x"], ["a b", "a b", "", "y"]).value == 50


def test_every_reading_has_a_signature_and_no_two_are_the_same():
    scores = bleu.all_scores(HYPOTHESIS, REFERENCES, "de")
    assert set(scores["signatures"]) == set(bleu.METRICS) == set(scores) - {"signatures"}
    assert len(set(scores["signatures"].values())) == len(bleu.METRICS)
    assert "tok:13a" in scores["signatures"]["sacrebleu"]
    assert all(part in scores["signatures"]["bleu_tok"] for part in ("moses:de", "tok:none", "smooth:none"))


def test_chrf_plus_plus_counts_words_in_pairs():
    signatures = bleu.all_scores(["a b c d"], ["a b c e"], "de")["signatures"]
    assert "|nw:2|" in signatures["chrf_pp"] and "|nw:0|" in signatures["chrf"]


def test_unequal_or_empty_corpora_are_refused():
    with pytest.raises(ValueError, match="2 hypotheses for 1 references"):
        bleu.sacrebleu(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="no sentence"):
        bleu.all_scores([], [], "de")


def test_tokens_as_they_are_are_not_split_again() -> None:
    hypotheses, references = ["ein &apos;mann&apos; läuft, schnell"], ["ein &apos;mann&apos; läuft, langsam"]
    assert bleu.bleu_as_is(hypotheses * 2, references * 2).value == pytest.approx(0.0)  # no 4 tokens agree
    same = bleu.bleu_as_is(references, references)
    assert same.value == pytest.approx(100.0) and "tok:none" in same.signature and "smooth:none" in same.signature
    assert bleu.tokenised_bleu(hypotheses * 2, references * 2, "de").value > 50


def test_edits_are_the_fewest_that_turn_one_line_into_the_other() -> None:
    assert bleu.edits_as_is(["ʔ aː ˧˧", "z a"], ["ʔ a ˧˧ n", "z a"]).value == pytest.approx(100 * 2 / 6)
    assert bleu.edits_as_is([""], ["a b"]).value == pytest.approx(100.0)
    assert bleu.edits_as_is(["a b"], ["a b"]).value == 0.0

    def fewest(first: tuple[str, ...], second: tuple[str, ...]) -> int:
        """The definition: the last words are equal, or one is replaced, dropped or added."""
        if not first or not second:
            return len(first) + len(second)
        if first[-1] == second[-1]:
            return fewest(first[:-1], second[:-1])
        return 1 + min(fewest(first[:-1], second[:-1]), fewest(first[:-1], second), fewest(first, second[:-1]))

    draw = random.Random(0)
    for _ in range(200):
        first, second = (tuple(draw.choices("abc", k=draw.randrange(1, 6))) for _ in range(2))
        expected = 100 * fewest(first, second) / len(second)
        assert bleu.edits_as_is([" ".join(first)], [" ".join(second)]).value == pytest.approx(expected), (first, second)


def test_a_language_without_spaces_is_not_one_word_a_line() -> None:
    hypotheses = ["他在公园里读一本旧书。", "我们昨天错过了去柏林的火车。"]
    references = ["他在公园里看一本旧书。", "我们昨天错过了去柏林的火车。"]
    for language, tokeniser in (("zh", "zh"), ("zh-CN", "zh"), ("ja", "char"), ("de", "13a"), ("", "13a")):
        score = bleu.sacrebleu(hypotheses, references, language=language)
        assert f"tok:{tokeniser}|" in score.signature
        assert (score.value > 80) == (tokeniser != "13a")
    scores = bleu.all_scores(hypotheses, references, "zh")
    assert scores["sacrebleu"] == scores["sacrebleu_lc"] == bleu.sacrebleu(hypotheses, references, language="zh").value
    # Of 11 and 14 characters one differs; by whole lines it is one of two.
    assert scores["ter"] == pytest.approx(100 / 25)
    assert "asian:yes" in scores["signatures"]["ter"]
    assert bleu.ter(hypotheses, references).value == pytest.approx(50)
    kana = bleu.ter(["わたしはねこです"], ["わたしはいぬです"], language="ja")
    assert kana.value == pytest.approx(100 * 2 / 8) and kana.signature.endswith("|words:characters")


@pytest.mark.parametrize("country", ["de-DE", "de_CH"])
def test_a_language_with_its_country_has_the_scores_of_the_language(country: str) -> None:
    hypotheses = ["Am 3 . Oktober kam er .", "Er ging bzw . lief heim ."]
    references = ["Am 3. Oktober kam er.", "Er ging bzw. lief heim."]
    assert bleu.paper_bleu(hypotheses, references, country) == bleu.paper_bleu(hypotheses, references, "de")
    assert bleu.all_scores(hypotheses, references, country) == bleu.all_scores(hypotheses, references, "de")
    assert bleu.tokenise(["l'homme qu'il aime"], "fr_FR") == bleu.tokenise(["l'homme qu'il aime"], "fr")
