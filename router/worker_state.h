// The one word for how a worker is, wherever the router says it: /workers, /statusz, the dashboard.
#pragma once

#include "router/cluster_view.h"

namespace tandem::router {

enum class WorkerState { kUp, kDown, kDraining, kEjected, kRemoved };

// The first that holds of: removed, down, draining, ejected, up.
inline WorkerState StateOf(const WorkerView& worker) {
  if (worker.is_removed) return WorkerState::kRemoved;
  if (!worker.is_up) return WorkerState::kDown;
  if (worker.is_draining) return WorkerState::kDraining;
  return worker.is_ejected ? WorkerState::kEjected : WorkerState::kUp;
}

inline const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kUp:
      return "up";
    case WorkerState::kDown:
      return "down";
    case WorkerState::kDraining:
      return "draining";
    case WorkerState::kEjected:
      return "ejected";
    case WorkerState::kRemoved:
      return "removed";
  }
  return "";
}

}  // namespace tandem::router
