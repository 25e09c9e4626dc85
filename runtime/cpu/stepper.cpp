#include "runtime/cpu/stepper.h"

#include <algorithm>

namespace maco::runtime {

Stepper::Stepper(int world, int launches, ContextCode code, Open open)
    : thread_(std::move(code)), open_(std::move(open)), launches_(launches) {
  launch_.assign(static_cast<size_t>(world), -1);
  for (int rank = 0; rank < world; ++rank) begin(rank);
  settle();
}

void Stepper::begin(int rank) {
  int& launch = launch_[static_cast<size_t>(rank)];
  if (++launch == launches_) return;
  std::vector<CpuContext*> contexts;
  open_(rank, launch, contexts);
  for (CpuContext* context : contexts) {
    context->now = [](maco_cpu::RoleContext*) -> uint64_t { return 1; };  // no wait expires
    context->pause = pause;
    context->changing = [](maco_cpu::RoleContext*, const void*) {};
    context->changed = changed;
    context->task = task;
    context->scouts = false;  // a task reads what it loads when its turn comes
    Worker& worker = workers_.emplace_back();
    worker.owner = this;
    worker.launch = launch;
    worker.fibre = &thread_.add(*context, &worker);
  }
}

// Runs everything that may run, until nothing does.
void Stepper::settle() {
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      if (worker.fibre->ended || worker.held || worker.word) continue;
      thread_.resume(*worker.fibre);
      progress = true;
    }
    for (size_t rank = 0; rank < launch_.size(); ++rank) {
      if (launch_[rank] == launches_) continue;
      const bool over = std::all_of(workers_.begin(), workers_.end(), [&](const Worker& w) {
        return w.fibre->ended || w.fibre->context->rank != static_cast<int>(rank);
      });
      if (!over) continue;
      begin(static_cast<int>(rank));
      progress = true;
    }
  }
}

Stepper::Went Stepper::step(const TaskPlace& at) {
  for (Worker& worker : workers_) {
    if (worker.fibre->context->role != 0 || worker.fibre->ended || place_of(worker) != at) continue;
    if (!worker.held && !worker.word) return Went::Elsewhere;
    worker.held = false;
    settle();
    if (worker.ended >= at.place) return Went::Ended;
    return worker.fibre->ended ? Went::Stopped : Went::Waits;
  }
  return Went::Elsewhere;
}

bool Stepper::finish() {
  free_ = true;
  for (Worker& worker : workers_) worker.held = false;
  settle();
  return standing().empty();
}

std::vector<TaskPlace> Stepper::standing() const {
  std::vector<TaskPlace> list;
  for (const Worker& worker : workers_)
    if (worker.fibre->context->role == 0 && !worker.fibre->ended) list.push_back(place_of(worker));
  std::sort(list.begin(), list.end());
  return list;
}

void Stepper::pause(maco_cpu::RoleContext* c, const void* word, unsigned) {
  Worker& worker = worker_of(c);
  worker.word = word;
  worker.owner->thread_.yield(*worker.fibre);
}

void Stepper::changed(maco_cpu::RoleContext* c, const void* word) {
  for (Worker& other : worker_of(c).owner->workers_)
    if (other.word == word) other.word = nullptr;
}

void Stepper::task(maco_cpu::RoleContext* c, int place, bool begins) {
  Worker& worker = worker_of(c);
  if (c->role != 0) return;
  if (!begins) {
    worker.ended = place;
    worker.owner->ended_.push_back(place_of(worker));
    return;
  }
  worker.place = place;
  if (worker.owner->free_) return;
  worker.held = true;
  worker.owner->thread_.yield(*worker.fibre);
}

}  // namespace maco::runtime
