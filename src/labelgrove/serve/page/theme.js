// Runs before anything is painted, so that a dark page does not begin with a white flash.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("labelgrove-theme");
  } catch {
    // A browser without storage follows its own setting.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
