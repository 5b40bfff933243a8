"""Trains a small language model from nothing with Hugging Face's Trainer, over as many jobs as it takes."""

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from anchorleg.job import Job
from orchestrator.integrations.transformers import HandOver

job = Job.from_environment() or Job.standalone(Path("runs/by-hand"))
job.listen()
params = {"max_steps": 2000, "learning_rate": 1e-3, "seed": 0} | job.settings()
text = torch.tensor(list(Path(__file__).read_bytes()))  # it learns to write this program, byte by byte
data = [{"input_ids": text[i : i + 64], "labels": text[i : i + 64]} for i in range(0, len(text) - 64, 8)]
hand_over = HandOver(job, every=500)
arguments = TrainingArguments(
    output_dir=hand_over.output_dir,
    max_steps=params["max_steps"],
    learning_rate=params["learning_rate"],
    seed=params["seed"],
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
torch.manual_seed(params["seed"])
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None)
)
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[hand_over])
hand_over.train(trainer)
