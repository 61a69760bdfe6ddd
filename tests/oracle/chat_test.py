"""A published model, talked with, says what transformers' greedy generation says, turn by turn."""

import os
import subprocess

import gguf_test
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

published = gguf_test.published
QUESTIONS = ["What is the capital of France?", "And of Italy?", "Which of the two is the older city? Say why in one sentence."]
N_NEW = 40


def test_turns(published):
    path = published("smollm2")
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    messages, answers = [], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        made = model.generate(**ids, max_new_tokens=N_NEW, do_sample=False)[0, ids["input_ids"].shape[1]:]
        answers.append(tokenizer.decode(made, skip_special_tokens=True))
        messages.append({"role": "assistant", "content": answers[-1]})
    assert "Paris" in answers[0] and "Rome" in answers[1]
    done = subprocess.run([os.environ["TEGULA_BIN"], "chat", "--model", path, "--temperature", "0",
                           "--max-tokens", str(N_NEW), "--context", "1024"], input="\n".join(QUESTIONS), capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(answer + "\n" for answer in answers)
    notes = [line for line in done.stderr.splitlines() if "of them in the cache" in line]
    kept = [int(line.split(" tokens, ")[1].split()[0]) for line in notes]
    assert kept[0] == 0 and kept[1] > 25 and kept[2] > kept[1], notes
