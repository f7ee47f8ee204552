"""Sentences with one wrong word: known ones, and what holds for all of them."""

from collections import Counter

import pytest

from lab.contrast.sentences import RELATIONS, contrasts
from lab.grammar.sentences import lexicon_of, pair
from lab.grammar.words import RICH
from vaswani.data.grammar.lexicon import BASE
from vaswani.data.grammar.sentences import Example, Links
from vaswani.data.trees.tree import Tree


def example(
    english: str, german: str, alignment: list[tuple[int, int]], **links: tuple[tuple[int, int], ...]
) -> Example:
    words = english.split()
    tree = Tree("S", tuple(Tree("X", word) for word in words))
    tokens = german.split()
    written = german.replace(" .", ".").replace(" ,", ",").replace(" ?", "?")
    return Example(english, written, tree, tuple(alignment), Links(**links), tuple(tokens))


def test_the_number_of_a_verb_is_the_other_one_and_a_capital_stays() -> None:
    asked = example("Can the boys sleep ?", "Können die Jungen schlafen ?", [], german_subjects=((0, 2),))
    assert list(contrasts(asked, BASE)) == [("agreement", 2, "Kann die Jungen schlafen?")]


def test_a_verb_and_its_particle_in_one_word_keep_the_particle() -> None:
    late = example("x", "Er schläft , wenn sie anrufen .", [], german_subjects=((5, 4),))
    assert list(contrasts(late, BASE)) == [("agreement", 1, "Er schläft, wenn sie anruft.")]


def test_a_particle_that_goes_with_the_verb_is_not_taken_for_a_wrong_one() -> None:
    fitting = {verb.particle for verbs in BASE.verbs_of.values() for verb in verbs if "ruft" in verb.present}
    known = {verb.particle for verbs in BASE.verbs_of.values() for verb in verbs} - {""}
    taken = set()
    for name in (*BASE.names, *BASE.families):  # which particle is taken depends on the sentence
        calls = example("x", f"Er ruft {name} an .", [], german_particles=((1, 3),))
        ((relation, distance, wrong),) = contrasts(calls, BASE)
        assert (relation, distance) == ("particle", 2)
        *rest, particle = wrong.removesuffix(".").split()
        assert rest == ["Er", "ruft", name]
        taken.add(particle)
    assert "an" in fitting and taken <= known - fitting and len(taken) > 2


def test_only_the_gender_of_it_is_changed() -> None:
    she = example(
        "he sees her because she sleeps .", "Er sieht sie , weil sie schläft .", [(4, 5)], german_pronouns=((5, 2),)
    )
    assert list(contrasts(she, BASE)) == []
    it = example(
        "he sees it because it sleeps .", "Er sieht sie , weil sie schläft .", [(4, 5)], german_pronouns=((5, 2),)
    )
    ((relation, distance, wrong),) = contrasts(it, BASE)
    assert (relation, distance) == ("it", 3)
    assert wrong in ("Er sieht sie, weil er schläft.", "Er sieht sie, weil es schläft.")


def test_a_verb_whose_forms_are_alike_is_left_out() -> None:
    unknown = example("x", "Er liefe .", [], german_subjects=((1, 0),))  # a form that the lexicon has not
    assert list(contrasts(unknown, BASE)) == []


@pytest.mark.parametrize("split", ["test", pytest.param("rich:test", marks=pytest.mark.slow)])
def test_every_contrast_differs_in_one_word_and_is_far_as_said(split: str) -> None:
    lexicon = lexicon_of(split)
    assert lexicon is (RICH if split.startswith("rich") else BASE)
    found: Counter[str] = Counter()
    far: Counter[str] = Counter()
    for index in range(300):
        drawn = pair(split, index)
        for relation, distance, wrong in contrasts(drawn, lexicon):
            right = drawn.german.split()
            changed = [place for place, word in enumerate(wrong.split()) if word != right[place]]
            assert len(changed) == 1 and len(wrong.split()) == len(right), (drawn.german, wrong)
            assert 1 <= distance < len(drawn.german_tokens)
            found[relation] += 1
            far[relation] += distance > 7
    assert found.keys() <= RELATIONS.keys() and found["agreement"] > 300, found
    if split.startswith("rich"):
        assert min(far[relation] for relation in RELATIONS) > 1, far


def test_a_subject_is_where_its_verb_says() -> None:
    """Whether the verb is plural as the English subject is: of "the boys sleep" both languages have the plural."""
    plural = {"are", "were", "do", "want"}
    singular = {"is", "was", "does", "wants"}
    seen = 0
    for index in range(300):
        drawn = pair("test", index)
        leaves = drawn.tree.leaves()
        english = {subject: verb for verb, subject in drawn.links.english_subjects}
        german = {subject: verb for verb, subject in drawn.links.german_subjects}
        assert len(english) == len(german)
        aligned = dict(drawn.alignment)
        for subject, verb in english.items():
            if leaves[verb].lower() in plural | singular and aligned.get(subject) in german:
                form = drawn.german_tokens[german[aligned[subject]]]
                is_plural = form.lower().endswith(("n", "nd")) and form.lower() not in ("bin",)
                assert is_plural == (leaves[verb].lower() in plural) or leaves[subject] in ("I", "you", "You"), drawn
                seen += 1
    assert seen > 60
